#include "cli/spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/numbers.h"
#include "cli/open_model.h"
#include "engine/backend_flags.h"

namespace fs::cli {

ComputeSpec parse_spec(std::string_view text, std::string_view flag, const ComputeSpec& defaults) {
  ComputeSpec spec = defaults;
  const auto items = split_list(text, flag);
  const auto choose = [&](std::string& choice, std::string_view key, std::string_view value,
                          const std::vector<std::string>& choices) {
    check_choice(value, fmt::format("{} {}: {}", flag, text, key), choices);
    choice = value;
  };
  const std::string_view first = items.front();
  const std::size_t colon = first.find(':');
  if (const auto& known = backend_choices;
      std::find(known.begin(), known.end(), first.substr(0, colon)) == known.end()) {
    fail(ExitCode::usage,
         "{} {}: backend \"{}\" is unknown; expected one of {}, or a recorded run: golden, dump:FILE", flag,
         text, first.substr(0, colon), fmt::join(known, ", "));
  }
  spec.compute.backend = first.substr(0, colon);
  if (spec.compute.backend != "auto") {  // what it does not have is for the other side
    for (const auto& unused :
         engine::flags_without_effect(spec.compute.backend, backend_options(spec.compute))) {
      if (unused.name == "--isa") spec.compute.isa = "auto";
      if (unused.name == "--device") spec.compute.device.reset();
      if (unused.name == "--step") spec.compute.step = "graph";
      if (unused.name == "--sync") spec.compute.sync = false;
    }
  }
  if (colon != std::string_view::npos) {
    choose(spec.compute.dtype, "dtype", first.substr(colon + 1), dtype_choices);
  }
  for (const std::string_view item : std::span(items).subspan(1)) {
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    if (value.empty()) fail(ExitCode::usage, "{} {}: \"{}\" is not KEY=VALUE", flag, text, item);
    if (key == "dtype") {
      choose(spec.compute.dtype, key, value, dtype_choices);
    } else if (key == "isa") {
      choose(spec.compute.isa, key, value, isa_choices);
    } else if (key == "kv") {
      choose(spec.compute.kv, key, value, kv_choices);
    } else if (key == "act") {
      choose(spec.compute.act, key, value, act_choices);
    } else if (key == "step") {
      choose(spec.compute.step, key, value, step_choices);
    } else if (key == "threads") {
      spec.compute.threads =
          parse_number<std::size_t>(value, fmt::format("{} {}: threads", flag, text), 1, most_threads);
    } else if (key == "device") {
      spec.compute.device =
          parse_number<std::size_t>(value, fmt::format("{} {}: device", flag, text), 0, 1023);
    } else if (key == "model") {
      spec.common.model = value;
    } else {
      fail(ExitCode::usage,
           "{} {}: unknown key \"{}\"; there are dtype, isa, kv, act, step, threads, device, model", flag,
           text, key);
    }
  }
  return spec;
}

}  // namespace fs::cli

#include "engine/backend_flags.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace fs::engine {
namespace {

/// Every such flag is a line here.
std::vector<BackendFlag> given(const BackendOptions& options) {
  const std::vector<std::string_view> cpu = {"cpu"}, cuda = {"cuda", "cuda-emulated"},
                                      fast = {"cpu", "cuda", "cuda-emulated"};
  std::vector<BackendFlag> flags;
  const auto add = [&](bool is_given, std::string_view name, std::string_view value, bool decides,
                       const std::vector<std::string_view>& backends) {
    if (!is_given) return;
    flags.push_back({name, fmt::format("{}{}{}", name, value.empty() ? "" : " ", value), decides, backends});
  };
  add(options.kv != "f32", "--kv", options.kv, true, fast);
  add(options.act != "f32", "--act", options.act, true, options.act == "int8" ? cpu : fast);
  add(options.isa != "auto", "--isa", options.isa, false, cpu);
  add(options.device.has_value(), "--device", std::to_string(options.device.value_or(0)), true, cuda);
  add(options.step != "graph", "--step", options.step, false, cuda);
  add(options.sync, "--sync", "", false, cuda);
  return flags;
}

}  // namespace

std::vector<BackendFlag> flags_without_effect(std::string_view backend, const BackendOptions& options) {
  std::vector<BackendFlag> flags = given(options);
  std::erase_if(flags, [&](const BackendFlag& flag) {
    return std::find(flag.backends.begin(), flag.backends.end(), backend) != flag.backends.end();
  });
  return flags;
}

std::string why_without_effect(std::string_view backend, const BackendFlag& flag) {
  const auto last = flag.backends.end() - 1;
  return fmt::format("{}: not for backend {}, only for {}{}{}", flag.text, backend,
                     fmt::join(flag.backends.begin(), last, ", "), flag.backends.size() > 1 ? " and " : "",
                     *last);
}

}  // namespace fs::engine

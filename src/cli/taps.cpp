#include "cli/taps.h"

#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/numbers.h"

namespace fs::cli {
namespace {

std::vector<std::string_view> point_names() {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < engine::tap_point_count; ++i)
    names.push_back(engine::name(engine::TapPoint(i)));
  return names;
}

}  // namespace

std::vector<CLI::Option*> add_taps(CLI::App& command, TapOptions& options, const std::string& verb) {
  return {add_text(command, "--taps", options.taps,
                   fmt::format("Points to {}; default: all of {}", verb, fmt::join(point_names(), ",")))
              ->type_name("LIST"),
          add_text(command, "--layers", options.layers,
                   fmt::format("Layers to {}: 0,13,27 or 0-5; default: all", verb))
              ->type_name("LIST")};
}

engine::TapChoice chosen_taps(const TapOptions& options, std::size_t n_layers) {
  engine::TapChoice chosen;
  const auto names = options.taps ? split_list(*options.taps, "--taps") : point_names();
  for (const std::string_view name : names) {
    const auto point = engine::tap_point_from_name(name);
    if (!point)
      fail(ExitCode::usage, "--taps: no point \"{}\"; there are {}", name, fmt::join(point_names(), ","));
    chosen.points.insert(*point);
  }
  if (options.layers) {
    const auto layers = parse_index_list(*options.layers, "--layers", n_layers);
    chosen.layers.emplace(layers.begin(), layers.end());
  }
  return chosen;
}

}  // namespace fs::cli

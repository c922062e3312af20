#include "cli/record.h"

#include <fmt/ranges.h>

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

void add_record(CLI::App& command, RecordOptions& options) {
  CLI::Option* record = add_text(command, "--record", options.file,
                                 "Write values inside the forward pass to a safetensors file, F32");
  record->type_name("FILE");
  add_text(command, "--taps", options.taps,
           fmt::format("Points to record; default: all of {}", fmt::join(point_names(), ",")))
      ->type_name("LIST")
      ->needs(record);
  add_text(command, "--layers", options.layers, "Layers to record: 0,13,27 or 0-5; default: all")
      ->type_name("LIST")
      ->needs(record);
}

std::unique_ptr<engine::Recorder> make_recorder(const RecordOptions& options, const model::Config& config) {
  if (!options.file) return nullptr;
  engine::RecorderOptions chosen;
  const auto names = options.taps ? split_list(*options.taps, "--taps") : point_names();
  for (const std::string_view name : names) {
    const auto point = engine::tap_point_from_name(name);
    if (!point)
      fail(ExitCode::usage, "--taps: no point \"{}\"; there are {}", name, fmt::join(point_names(), ","));
    chosen.points.insert(*point);
  }
  if (options.layers) {
    const auto layers = parse_index_list(*options.layers, "--layers", config.n_layers);
    chosen.layers.emplace(layers.begin(), layers.end());
  }
  return std::make_unique<engine::Recorder>(std::move(chosen));
}

void write_record(const RecordOptions& options, const engine::Recorder& recorder, std::string_view model,
                  const std::vector<TokenId>& ids) {
  recorder.write(*options.file,
                 {{"model", std::string(model)}, {"tokens", fmt::format("{}", fmt::join(ids, ","))}});
}

}  // namespace fs::cli

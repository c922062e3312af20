#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "cli/options.h"
#include "engine/recorder.h"
#include "model/config.h"

namespace fs::cli {

/// --record, --taps, --layers: values inside the forward pass, into a file.
struct RecordOptions {
  std::optional<std::string> file;
  std::optional<std::string> taps;    ///< "embed,block_out"; every point if absent
  std::optional<std::string> layers;  ///< "0,13,27" or "0-5"; every layer if absent
};
void add_record(CLI::App& command, RecordOptions& options);

/// What to record, or null without --record. Throws Error(usage) for a point or a layer that does not exist.
std::unique_ptr<engine::Recorder> make_recorder(const RecordOptions& options, const model::Config& config);

/// Writes the file, saying in its metadata which model and prompt it is of. Throws Error(failed).
void write_record(const RecordOptions& options, const engine::Recorder& recorder, std::string_view model,
                  const std::vector<TokenId>& ids);

}  // namespace fs::cli

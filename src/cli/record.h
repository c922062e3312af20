#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "cli/open_model.h"
#include "cli/taps.h"
#include "engine/recording.h"

namespace fs::cli {

/// --record, with --taps and --layers: values inside the forward pass, into a file.
struct RecordOptions {
  std::optional<std::string> file;
  TapOptions taps;
};
void add_record(CLI::App& command, RecordOptions& options);

/// Writes the file. Its metadata says what was recorded: model, model_hash, tokens, backend, build. Reads a
/// checkpoint's weights again for the hash. Throws Error(failed).
void write_recording(const std::string& file, const engine::Recording& recording, const OpenModel& model,
                     std::string_view backend, const std::vector<TokenId>& tokens, const Progress& progress);

}  // namespace fs::cli

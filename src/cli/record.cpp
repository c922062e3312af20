#include "cli/record.h"

#include <fmt/ranges.h>

#include "cli/flags.h"
#include "cli/verify.h"
#include "text/utf8.h"

namespace fs::cli {

void add_record(CLI::App& command, RecordOptions& options) {
  CLI::Option* record = add_file(command, "--record", options.file,
                                 "Write values inside the forward pass to a safetensors file, F32");
  for (CLI::Option* flag : add_taps(command, options.taps, "record")) flag->needs(record);
}

void write_recording(const std::string& file, const engine::Recording& recording, const OpenModel& model,
                     std::string_view backend, const std::vector<TokenId>& tokens, const Progress& progress) {
  recording.write(file, {{"model", text::lossy_utf8(model.name()).text},
                         {"model_hash", model_hash(model.checkpoint, progress)},
                         {"tokens", fmt::format("{}", fmt::join(tokens, ","))},
                         {"backend", std::string(backend)},
                         {"build", "fs " FS_VERSION}});
}

}  // namespace fs::cli

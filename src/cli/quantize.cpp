#include <filesystem>
#include <memory>
#include <system_error>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/open_model.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/written_vocabulary.h"
#include "model/gguf_export.h"

namespace fs::cli {
namespace {

namespace files = std::filesystem;

struct QuantizeOptions {
  CommonOptions common;
  std::optional<std::string> out;
  ComputeOptions compute;  ///< --threads only
  std::string dtype = "q8_0";
  bool force = false;
};

const std::vector<std::string> gguf_dtypes = {"q8_0", "bf16", "f16", "f32"};

model::Dtype chosen_dtype(const std::string& dtype) {
  return dtype == "q8_0"   ? model::Dtype::q8_0
         : dtype == "bf16" ? model::Dtype::bf16
         : dtype == "f16"  ? model::Dtype::f16
                           : model::Dtype::f32;
}

/// Refuses a name that cannot or must not be written. Throws Error(usage); Error(failed) for what is there
/// already, and as AtomicFile does.
void check_target(const files::path& out, const model::Checkpoint& checkpoint, bool force) {
  std::error_code none;
  if (out.extension() != ".gguf") {
    fail(ExitCode::usage, "{}: expected a name that ends in .gguf, by which the format is known",
         out.string());
  }
  AtomicFile::check(out);
  const files::file_status status = files::status(out, none);
  if (!files::exists(status)) return;
  if (!files::is_regular_file(status)) fail(ExitCode::usage, "{}: not a regular file", out.string());
  for (const model::TensorInfo& tensor : checkpoint.tensors()) {
    if (!tensor.file.empty() && files::equivalent(out, tensor.file, none)) {
      fail(ExitCode::usage, "{}: is the model itself; choose another name", out.string());
    }
  }
  if (!force) {
    fail(ExitCode::failed, "{}: exists already; choose another name, or --force to replace it", out.string());
  }
}

/// What a model is called: as its GGUF file says, else the last part of where it is.
std::string model_name(const model::Checkpoint& checkpoint) {
  constexpr std::string_view key = "general.name";
  if (const model::GgufModel* const gguf = checkpoint.gguf()) {
    const model::GgufMetadata& metadata = gguf->file().metadata;
    if (metadata.contains(key)) return std::string(metadata.text(key));
  }
  const model::Location& location = checkpoint.location();
  if (!location.synthetic.empty()) return location.spec;
  files::path path =
      files::absolute(location.spec).lexically_normal();  // also of ORG/NAME: NAME is what counts
  if (path.extension() == ".safetensors" || !path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

ExitCode quantize(const QuantizeOptions& options, const Hooks& hooks) {
  const OpenModel model = open_model(options.common, options.compute);
  const model::Checkpoint& checkpoint = model.checkpoint;
  const model::Dtype dtype = chosen_dtype(options.dtype);
  const files::path out = *options.out;
  check_target(out, checkpoint, options.force);
  model::check_gguf_dtype(checkpoint.config(), dtype);
  const WrittenVocabulary vocabulary(checkpoint);

  const InterruptScope interrupt;
  ProgressBar progress(options.common.quiet);
  const model::Weights weights = load_weights(model, options.compute, hooks, progress);
  ThreadPool pool(options.compute.threads == 0 ? available_processors() : options.compute.threads);
  model::export_gguf(out, checkpoint.config(), weights,
                     {.name = model_name(checkpoint),
                      .dtype = dtype,
                      .vocabulary = vocabulary.get(),
                      .existing = options.force ? AtomicFile::Existing::replace : AtomicFile::Existing::keep},
                     pool, progress.callback());
  progress.erase();
  if (!options.common.quiet) {
    const double mebibytes = static_cast<double>(files::file_size(out)) / 1048576;
    notice(fmt::format(
        "wrote {} to {}: {}, {:.1f} MiB{}", model.name(), out.string(), model::name(dtype), mebibytes,
        vocabulary.get() != nullptr ? ""
                                    : "; it has no tokenizer, as the model has none: the file says "
                                      "so (tokenizer.ggml.model \"no_vocab\")"));
  }
  return ExitCode::ok;
}

}  // namespace

void add_quantize(CommandLine& line) {
  auto options = std::make_shared<QuantizeOptions>();
  CLI::App& command = *line.app.add_subcommand("quantize", "Write a model as one GGUF file");
  command.footer(
      "The file holds configuration, tokenizer and weights, and runs with nothing beside it, in llama.cpp "
      "too. Its\n"
      "weights are those that --dtype gives at load, bit for bit. It appears whole or not at all.\n\n"
      "Examples:\n"
      "  fs quantize Qwen/Qwen3-0.6B Qwen3-0.6B-Q8_0.gguf\n"
      "  fs quantize --dtype bf16 synthetic:qwen3-0.6b synthetic.gguf\n");
  add_text(command, "MODEL", options->common.model, "What --model names elsewhere")->required();
  add_text(command, "OUT", options->out, "The file to write: NAME.gguf")->required();
  add_choice(command, "--dtype", options->dtype, gguf_dtypes,
             "Format of the matrices, norms being fp32; q8_0 if not given");
  add_number<std::size_t>(command, "--threads,-t", options->compute.threads, 1, most_threads,
                          "Processor threads. Default: one for each processor");
  command.add_flag("--force", options->force, "Replace a file that is there");
  command.add_flag("-q,--quiet", options->common.quiet, "Only errors: no notices or progress");
  command.callback(
      [&line, options] { line.action = [&line, options] { return quantize(*options, line.hooks); }; });
}

}  // namespace fs::cli

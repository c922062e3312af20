#include <fmt/ranges.h>

#include <memory>

#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "model/synthetic.h"

namespace fs::cli {
namespace {

struct SynthOptions {
  std::optional<std::string> shape, directory;
  std::optional<std::uint64_t> seed;
  bool force = false, quiet = false;
};

ExitCode synth(const SynthOptions& options) {
  const auto shapes = model::synthetic_shapes();
  check_choice(*options.shape, "SHAPE", {shapes.begin(), shapes.end()});
  const std::uint64_t seed = options.seed.value_or(0);
  const InterruptScope interrupt;
  ProgressBar progress(options.quiet);
  ThreadPool pool(available_processors());
  model::write_synthetic_checkpoint(*options.shape, seed, *options.directory, options.force, pool,
                                    progress.callback());
  progress.erase();
  if (!options.quiet) {
    notice(fmt::format("wrote synthetic:{}@{} to {}; it has no tokenizer: prompts are given with --tokens",
                       *options.shape, seed, *options.directory));
  }
  return ExitCode::ok;
}

}  // namespace

void add_synth(CommandLine& line) {
  auto options = std::make_shared<SynthOptions>();
  CLI::App& command = *line.app.add_subcommand("synth", "Write a synthetic model as a checkpoint directory");
  command.footer(
      "Every weight is a hash of seed, tensor name and index: the same bytes everywhere.\n\n"
      "Examples:\n"
      "  fs synth tiny-odd odd-model\n"
      "  fs logits --model odd-model --tokens 1,2,3\n");
  add_text(command, "SHAPE", options->shape,
           fmt::format("One of {}", fmt::join(model::synthetic_shapes(), ", ")))
      ->required();
  add_text(command, "DIR", options->directory, "Where to; made if it is not there")->required();
  add_seed(command, options->seed, "Another seed, other weights. Default: 0");
  command.add_flag("--force", options->force, "Replace files that are there");
  command.add_flag("-q,--quiet", options->quiet, "Only errors: no notices or progress");
  command.callback([&line, options] { line.action = [options] { return synth(*options); }; });
}

}  // namespace fs::cli

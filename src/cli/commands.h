#pragma once
#include <functional>
#include <string>

#include "base/error.h"
#include "cli/run.h"

namespace CLI {
class App;
}

namespace fs::cli {

/// What a command adds itself to. Parsing only chooses `action`; run() calls it.
struct CommandLine {
  CLI::App& app;
  const Hooks& hooks;
  std::function<ExitCode()> action;
  std::string use_less = "use a smaller model or text";  ///< where memory runs out: with flags that it has
};

// Each declares one subcommand, its flags and its help (<command>.cpp).
void add_generate(CommandLine& line);
void add_logits(CommandLine& line);
void add_layer_diff(CommandLine& line);
void add_bench(CommandLine& line);
void add_tokenize(CommandLine& line);
void add_detokenize(CommandLine& line);
void add_eval(CommandLine& line);
void add_inspect(CommandLine& line);
void add_quantize(CommandLine& line);
void add_synth(CommandLine& line);
void add_devices(CommandLine& line);

}  // namespace fs::cli

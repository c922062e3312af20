#include "cli/run.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/help.h"
#include "cli/terminal.h"
#include "cli/version.h"

namespace fs::cli {
namespace {

/// CLI11 would read --flag=false, and any number for true.
void refuse_flag_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) option->disable_flag_override();
  }
  for (CLI::App* command : app.get_subcommands({})) refuse_flag_values(*command);
}
/// CLI11 gives help, or the version, before it looks at what is left over.
void refuse_unknown_command(const CLI::App& app) {
  for (const std::string& argument : app.remaining()) {
    if (app.get_subcommands().empty() && !argument.starts_with('-'))
      fail(ExitCode::usage, "unknown command {}; see fs --help", verbatim(argument));
  }
}

ExitCode parse_and_run(CommandLine& line, int argc, const char* const* argv) {
  try {
    std::vector<std::string> arguments;  // last one first, as CLI11 takes them
    const char* const* const plain = std::find(argv, argv + argc, std::string_view("--"));
    const auto first_plain = static_cast<int>(plain - argv);
    for (int i = argc - 1; i > 0; --i) arguments.push_back(keep_verbatim(argv[i], i > first_plain));
    // `fs help` and `fs help COMMAND`, as of git and apt.
    const bool help = !arguments.empty() && arguments.back() == "help";
    while (!arguments.empty() && arguments.back() == "help") arguments.pop_back();
    if (help) arguments.insert(arguments.begin(), "--help");
    line.app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    refuse_unknown_command(line.app);
    const auto chosen = line.app.get_subcommands();
    print(chosen.empty() ? line.app.help() : chosen.front()->help("fs"));
    return ExitCode::ok;
  } catch (const CLI::CallForVersion& version) {
    refuse_unknown_command(line.app);
    print(fmt::format("{}\n", version.what()));
    return ExitCode::ok;
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::usage, usage_message(line.app, error));
  }
  return line.action();
}

/// Prints what is still owed to stdout, then the error.
ExitCode give_up(ExitCode code, std::string_view message) {
  try {
    flush();
  } catch (const Error&) {
    // The error that is about to be said came first.
  }
  error_line(message);
  return code;
}

}  // namespace

int run(int argc, const char* const* argv, const Hooks& hooks) {
  ExitCode code = ExitCode::ok;
  CLI::App app("fs runs Qwen3-0.6B and other dense Qwen3 models: exact, explainable, fast.", "fs");
  CommandLine line{app, hooks, {}};
  try {
    prepare_process();
    app.formatter(std::make_shared<HelpFormatter>());
    app.set_version_flag("--version", version_text, "Print the version and the cpu kernels, best first");
    app.set_help_flag("-h,--help", "Print this help");
    app.require_subcommand(1);
    app.footer(
        "Examples:\n"
        "  fs generate \"The capital of France is\"\n"
        "  fs logits \"The capital of France is\"\n"
        "  fs generate --help\n");
    add_generate(line);
    add_logits(line);
    add_layer_diff(line);
    add_bench(line);
    add_tokenize(line);
    add_detokenize(line);
    add_eval(line);
    add_inspect(line);
    add_quantize(line);
    add_synth(line);
    add_devices(line);
    refuse_flag_values(app);
    code = parse_and_run(line, argc, argv);
    flush();
  } catch (const MemoryError& error) {
    code = give_up(error.code(), fmt::format("{}; {}", error.what(), line.use_less));
  } catch (const Error& error) {
    code = give_up(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    code = give_up(ExitCode::failed, "out of memory: " + line.use_less);
  } catch (const std::exception& error) {
    code = give_up(ExitCode::failed, error.what());
  }
  return static_cast<int>(code);
}

}  // namespace fs::cli

#include <fmt/ranges.h>

#include <memory>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/json_output.h"
#include "cli/open_model.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace fs::cli {
namespace {

struct DetokenizeOptions {
  CommonOptions common;
  PromptOptions ids;
  bool json = false;
};

ExitCode detokenize(const DetokenizeOptions& options) {
  const auto tokenizer = open_tokenizer(options.common);
  const auto ids = parse_token_ids(read_text(options.ids, FinalNewline::drop), "token ids");
  const std::string text = tokenizer.decode(ids);
  if (options.json) {
    print_json({{"ids", ids}, {"pieces", json_pieces(&tokenizer, ids)}, {"text", text}});
  } else {
    print(text);
    print("\n");
  }
  return ExitCode::ok;
}

}  // namespace

void add_detokenize(CommandLine& line) {
  auto options = std::make_shared<DetokenizeOptions>();
  CLI::App& command = *line.app.add_subcommand("detokenize", "Token ids to text");
  command.footer(
      "Ids are separated by blanks or commas. The text is printed with one newline after it.\n\n"
      "Examples:\n"
      "  fs detokenize 272 301 290\n"
      "  fs tokenize \"round trip\" | fs detokenize\n");
  add_words(command, "IDS", options->ids.words, "The ids; - is standard input");
  add_file(command, "-f,--file", options->ids.file, "Read the ids from a file; - is standard input");
  command.add_flag(
      "--stdin", options->ids.standard_input,
      "Read the ids from standard input; also what happens without ids when it is not a terminal");
  command.add_flag("--json", options->json, "One JSON object: ids, pieces, text");
  add_common(command, options->common);
  command.callback([&line, options] { line.action = [options] { return detokenize(*options); }; });
}

}  // namespace fs::cli

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

struct TokenizeOptions {
  CommonOptions common;
  PromptOptions text;
  bool pieces = false, json = false, count = false, no_special = false;
};

ExitCode tokenize(const TokenizeOptions& options) {
  const auto tokenizer = open_tokenizer(options.common);
  const std::string text =
      valid_utf8(read_text(options.text, FinalNewline::keep), "the text", options.common.quiet);
  const auto added = options.no_special ? text::AddedTokens::as_text : text::AddedTokens::recognise;
  const std::vector<TokenId> ids = tokenizer.encode(text, added);

  if (options.json) {
    print_json({{"count", ids.size()}, {"ids", ids}, {"pieces", json_pieces(&tokenizer, ids)}});
  } else if (options.count) {
    print(fmt::format("{}\n", ids.size()));
  } else if (options.pieces) {
    print("  TOKEN ID  PIECE\n");
    for (const TokenId id : ids) print(fmt::format("{:>10}  {}\n", id, quoted_piece(&tokenizer, id)));
  } else {
    print(fmt::format("{}\n", fmt::join(ids, " ")));
  }
  return ExitCode::ok;
}

}  // namespace

void add_tokenize(CommandLine& line) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App& command = *line.app.add_subcommand("tokenize", "Text to token ids");
  command.footer(
      "Ids are those of Hugging Face tokenizers. No weights are read. Every byte of a file or of standard "
      "input\n"
      "counts, a final newline too.\n\n"
      "Examples:\n"
      "  fs tokenize \"The capital of France is\"\n"
      "  fs tokenize --pieces \"naïve 🙂\"\n"
      "  fs tokenize --count -f README.md\n"
      "  printf '<|im_start|>' | fs tokenize --no-special\n");
  add_prompt(command, options->text, "TEXT");
  CLI::Option* pieces = command.add_flag("--pieces", options->pieces, "A table of ids and quoted pieces");
  CLI::Option* json = command.add_flag("--json", options->json, "One JSON object: count, ids, pieces");
  CLI::Option* count = command.add_flag("--count", options->count, "Only how many tokens there are");
  pieces->excludes(json)->excludes(count);
  json->excludes(count);
  command.add_flag("--no-special", options->no_special,
                   "Take <|im_start|> and its like in the text as plain text");
  add_common(command, options->common);
  command.callback([&line, options] { line.action = [options] { return tokenize(*options); }; });
}

}  // namespace fs::cli

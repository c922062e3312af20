#include "cli/input.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "text/utf8.h"

namespace fs::cli {
namespace {

std::string from_file(const std::string& path, FinalNewline newline) {
  std::string text = read_input(path);
  if (newline == FinalNewline::drop && text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::string read_input(const std::string& path) {
  try {
    return read_stream(path, throw_if_interrupted);
  } catch (const Error& error) {
    if (error.code() != ExitCode::unusable) throw;
    throw Error(ExitCode::usage, error.what());
  }
}

std::string read_text(const PromptOptions& options, FinalNewline newline) {
  const auto named = options.named();
  if (named.size() > 1) {
    fail(ExitCode::usage, "the text is given more than once: {}; give it in one way",
         fmt::join(named, " and "));
  }
  if (options.file) return from_file(*options.file, newline);
  if (options.prompt && *options.prompt != "-") return *options.prompt;
  const bool dash = options.words.size() == 1 && options.words.front() == "-";
  if (!options.words.empty() && !dash) return fmt::format("{}", fmt::join(options.words, " "));
  if (named.empty() && stdin_is_terminal()) {
    fail(ExitCode::usage, "no text: give it as an argument, with -p TEXT, with -f FILE or on standard input");
  }
  return from_file("-", newline);
}

std::string valid_utf8(std::string_view bytes, std::string_view source, bool quiet) {
  text::LossyText lossy = text::lossy_utf8(bytes);
  if (lossy.replaced > 0 && !quiet) {
    notice(fmt::format("{} is not valid UTF-8: {} bad byte sequence{} became U+FFFD", source, lossy.replaced,
                       lossy.replaced == 1 ? "" : "s"));
  }
  return std::move(lossy.text);
}

const text::Tokenizer& require_tokenizer(const text::Tokenizer* tokenizer, std::string_view model) {
  if (tokenizer == nullptr) {
    fail(ExitCode::usage, "{} has no tokenizer: give token ids with --tokens 785,6722,315", model);
  }
  return *tokenizer;
}

std::vector<TokenId> prompt_ids(const PromptOptions& options, const text::Tokenizer* tokenizer,
                                std::string_view model, bool quiet) {
  if (options.only_tokens()) return parse_token_ids(*options.tokens, "--tokens");
  const std::string text = read_text(options, FinalNewline::drop);
  return require_tokenizer(tokenizer, model).encode(valid_utf8(text, "the prompt", quiet));
}

}  // namespace fs::cli

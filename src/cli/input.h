#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "cli/options.h"
#include "text/tokenizer.h"

namespace fs::cli {

/// What to do with the newline that ends a text file or `echo`.
enum class FinalNewline {
  keep,  ///< every byte counts
  drop   ///< one newline at the end of a file or of standard input is not part of the prompt, as in $(…)
};

/// A whole file named on the command line; "-" is standard input. Throws Error(usage) if it cannot be read.
std::string read_input(const std::string& path);

/// The text that the options name, in the order given. Throws Error(usage) if several sources are named, or
/// none and standard input is a terminal, or a file that cannot be read.
std::string read_text(const PromptOptions& options, FinalNewline newline);

/// `bytes` as valid UTF-8; says once on stderr, unless quiet, how much was replaced. `source` names the text.
std::string valid_utf8(std::string_view bytes, std::string_view source, bool quiet);

/// The prompt's ids: --tokens as they are, a text through the tokenizer. `tokenizer` may be null, which is an
/// Error(usage) for a text. `model` names the checkpoint in errors.
std::vector<TokenId> prompt_ids(const PromptOptions& options, const text::Tokenizer* tokenizer,
                                std::string_view model, bool quiet);

/// Throws Error(usage) naming `model` if there is no tokenizer.
const text::Tokenizer& require_tokenizer(const text::Tokenizer* tokenizer, std::string_view model);

}  // namespace fs::cli

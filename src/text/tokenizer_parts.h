#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"

namespace fs::text {

/// A token that is found in the text before anything is split, with the flags of Hugging Face's AddedToken.
struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool lstrip = false;      ///< takes the white space before it with it
  bool rstrip = false;      ///< takes the white space after it with it
  bool normalized = false;  ///< looked for in the normalised text instead of the text as it came
  bool special = false;     ///< controls, is not text
};

/// What a tokenizer is made of, whatever file it was in. The views must live until Tokenizer::build returns.
struct TokenizerParts {
  bool nfc = false;                      ///< normalise to NFC first
  std::vector<std::string_view> tokens;  ///< the vocabulary by id, in byte-level characters
  std::vector<std::pair<std::string_view, std::string_view>> merges;  ///< in order of rank
  /// In order of id. Each is in the vocabulary under this id, or continues it without a gap.
  std::vector<AddedToken> added;
  /// What the file calls its vocabulary and its merges, for errors.
  std::string_view tokens_key = "model.vocab", merges_key = "model.merges";
};

}  // namespace fs::text

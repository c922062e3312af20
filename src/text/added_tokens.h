#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_parts.h"

namespace fs::text {

/// A piece of a text: ordinary text, or an added token with the white space that it takes with it.
struct Piece {
  std::string_view text;
  std::optional<TokenId> added;
};

/// Finds added tokens in a text: at the leftmost place the longest one, as Hugging Face's AddedVocabulary
/// does.
class AddedTokenFinder {
 public:
  struct Pattern {
    std::string text;  ///< not empty
    TokenId id;
    bool lstrip, rstrip;
  };
  /// Of equal patterns the first one counts.
  explicit AddedTokenFinder(std::vector<Pattern> patterns);

  /// Cuts valid UTF-8 into pieces, none of them empty.
  std::vector<Piece> split(std::string_view utf8) const;

 private:
  /// The longest pattern that `text` starts with, or nullptr.
  const Pattern* match(std::string_view text) const;

  std::array<bool, 256> starts_{};        // whether a pattern starts with this byte
  std::vector<Pattern> patterns_;         // by first byte, the longest first
  std::array<std::size_t, 257> begin_{};  // patterns that start with byte b: [begin_[b], begin_[b + 1])
};

}  // namespace fs::text

#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace fs::text {

struct TokenizerParts;

/// What `<|im_start|>` and other added tokens in a text mean.
enum class AddedTokens {
  recognise,  ///< they become their one id, as Hugging Face does
  as_text     ///< they are ordinary characters: for text that is not trusted
};

/// Text to token ids and back: the byte-level BPE of a Hugging Face tokenizer.json, identical id for id to
/// the `tokenizers` library. Immutable; any number of threads may use one.
class Tokenizer {
 public:
  /// Reads tokenizer.json. Throws Error(unusable) naming the file and the key for anything that is malformed
  /// or that this tokenizer does not implement.
  static Tokenizer load(const std::filesystem::path& path);
  /// The same from memory; `source` names it in errors.
  static Tokenizer parse(std::string_view json, const std::string& source);

  /// From a vocabulary, merges and added tokens, whatever file they were in (see tokenizer_parts.h); `source`
  /// names it in errors.
  static Tokenizer build(const TokenizerParts& parts, const std::string& source);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids of `utf8`, which must be valid UTF-8 (see lossy_utf8). Linear in its length.
  std::vector<TokenId> encode(std::string_view utf8, AddedTokens added = AddedTokens::recognise) const;

  /// Text of `ids`, invalid UTF-8 replaced by U+FFFD as Hugging Face does. Throws Error(usage) for an unknown
  /// id.
  std::string decode(std::span<const TokenId> ids) const;

  /// The bytes one id stands for; not always whole characters. Throws Error(usage) for an unknown id.
  std::string_view bytes(TokenId id) const;

  /// Ids run from 0 to size() - 1. A gap in the vocabulary is an error at load.
  std::size_t size() const;
  /// The id of an added token by its exact content (`<|im_end|>`), or nothing.
  std::optional<TokenId> added_token(std::string_view content) const;
  /// True for added tokens marked special: they control, they are not text.
  bool is_special(TokenId id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace fs::text

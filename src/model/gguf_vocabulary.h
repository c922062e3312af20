#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "model/gguf_metadata.h"
#include "model/gguf_writer.h"

namespace fs::model {

/// What a token of a GGUF vocabulary is, by the numbers of the file format.
enum class GgufTokenType : std::uint8_t { normal = 1, control = 3, user_defined = 4, unused = 5 };

/// The vocabulary in a GGUF file: a byte-level BPE with Qwen2's split pattern. Views into the file (or into
/// what is to be written).
struct GgufVocabulary {
  std::vector<std::string_view> tokens;  ///< [vocab_size] valid UTF-8, none empty, in byte-level characters
  std::vector<GgufTokenType> types;      ///< [vocab_size]; unused ones pad the embedding table
  std::vector<std::string_view> merges;  ///< "a b", in order of rank
  std::optional<TokenId> eos, eot, bos, padding;
  std::optional<std::string_view> chat_template;  ///< a Jinja template

  /// Ids without the unused ones at the end: those that a tokenizer knows.
  std::size_t used() const;
};

/// Reads tokenizer.*; nothing if the file says that it has no vocabulary (tokenizer.ggml.model "no_vocab" or
/// "none"). Throws Error(unusable) naming file and key: missing, malformed, not as many tokens as
/// `vocab_size`, another kind of tokenizer or split pattern, or one that adds tokens of its own to a text.
std::optional<GgufVocabulary> parse_gguf_vocabulary(const GgufMetadata& metadata, std::size_t vocab_size);

/// The ids that end a text: tokenizer.ggml.eos_token_id, eot_token_id, and the control tokens <|im_end|> and
/// <|endoftext|>, both of which end Qwen3's texts while GGUF has room for one (llama.cpp finds them by name
/// too). Ascending.
std::vector<TokenId> end_tokens(const GgufVocabulary& vocabulary);

/// Adds tokenizer.* pairs that say `vocabulary`; that there is none, if it is null: llama.cpp then takes as
/// many nameless tokens as qwen3.vocab_size says.
void add_vocabulary(GgufPairs& pairs, const GgufVocabulary* vocabulary);

}  // namespace fs::model

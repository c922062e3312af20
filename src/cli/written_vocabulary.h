#pragma once
#include <deque>
#include <optional>
#include <string>

#include "base/json.h"
#include "model/checkpoint.h"
#include "model/gguf_vocabulary.h"

namespace fs::cli {

/// The vocabulary of a checkpoint as a GGUF file is to have it, and what its views point into.
class WrittenVocabulary {
 public:
  /// Of tokenizer.json, tokenizer_config.json (special tokens, chat template; chat_template.jinja wins as in
  /// Hugging Face transformers) and config.json beside the weights, as llama.cpp's converter reads them; of a
  /// GGUF file, its own. Throws Error(unusable) naming file and key, also where GGUF has no way to say
  /// something. `checkpoint` must outlive it.
  explicit WrittenVocabulary(const model::Checkpoint& checkpoint);

  /// Null for a model without a tokenizer.
  const model::GgufVocabulary* get() const { return vocabulary_ ? &*vocabulary_ : nullptr; }

 private:
  void read_tokenizer(const std::filesystem::path& file, std::size_t vocab_size);
  void read_specials(const std::filesystem::path& directory);

  std::optional<JsonDocument> tokenizer_;
  std::deque<std::string> texts_;  // never moves what it holds
  std::optional<model::GgufVocabulary> vocabulary_;
};

}  // namespace fs::cli

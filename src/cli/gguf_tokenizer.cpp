#include "cli/gguf_tokenizer.h"

#include "base/error.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

namespace fs::cli {

text::Tokenizer gguf_tokenizer(const model::GgufVocabulary& vocabulary, const std::string& source) {
  text::TokenizerParts parts;
  parts.tokens_key = "tokenizer.ggml.tokens";
  parts.merges_key = "tokenizer.ggml.merges";
  // GGUF does not say so, but tokenizer.ggml.pre "qwen2" stands for a tokenizer.json that normalises to NFC.
  parts.nfc = true;
  parts.tokens.assign(vocabulary.tokens.begin(),
                      vocabulary.tokens.begin() + static_cast<std::ptrdiff_t>(vocabulary.used()));
  for (TokenId id = 0; id < parts.tokens.size(); ++id) {
    const bool control = vocabulary.types[id] == model::GgufTokenType::control;
    if (!control && vocabulary.types[id] != model::GgufTokenType::user_defined) continue;
    parts.added.push_back({.content = std::string(parts.tokens[id]), .id = id, .special = control});
  }
  parts.merges.reserve(vocabulary.merges.size());
  for (const std::string_view merge : vocabulary.merges) {
    const std::size_t space = merge.find(' ');
    if (space == 0 || space >= merge.size() - 1 || merge.find(' ', space + 1) != std::string_view::npos) {
      fail(ExitCode::unusable, "{}: {}[{}] is {}, expected two tokens and a space, \"a b\"", source,
           parts.merges_key, parts.merges.size(), text::quote(merge));
    }
    parts.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return text::Tokenizer::build(parts, source);
}

}  // namespace fs::cli

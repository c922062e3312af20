#pragma once
#include <string>

#include "model/gguf_vocabulary.h"
#include "text/tokenizer.h"

namespace fs::cli {

/// The tokenizer that a GGUF file's vocabulary describes: id for id that of the tokenizer.json it was made
/// from. `source` names the file in errors. Throws Error(unusable).
text::Tokenizer gguf_tokenizer(const model::GgufVocabulary& vocabulary, const std::string& source);

}  // namespace fs::cli

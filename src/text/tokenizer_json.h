#pragma once
#include "base/json.h"
#include "text/tokenizer_parts.h"

namespace fs::text {

/// What a Hugging Face tokenizer.json holds. Every key is either implemented or must have the value that
/// makes it meaningless: anything else is an Error(unusable) naming the file, the key, what was found and
/// what was expected. The views point into `json`.
TokenizerParts read_tokenizer_json(const JsonDocument& json);

}  // namespace fs::text

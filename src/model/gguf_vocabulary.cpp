#include "model/gguf_vocabulary.h"

#include <simdjson.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "model/quoted.h"

namespace fs::model {
namespace {

constexpr std::string_view model_key = "tokenizer.ggml.model";
constexpr std::string_view tokens_key = "tokenizer.ggml.tokens";
constexpr std::string_view types_key = "tokenizer.ggml.token_type";
constexpr std::string_view merges_key = "tokenizer.ggml.merges";

void expect_text(const GgufMetadata& metadata, std::string_view key, std::string_view expected) {
  if (metadata.text(key) != expected) {
    metadata.reject(key, fmt::format("\"{}\": nothing else is implemented", expected));
  }
}

/// Throws unless each is valid UTF-8 and not empty.
void check_texts(const GgufMetadata& metadata, std::string_view key,
                 std::span<const std::string_view> texts) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty() || !simdjson::validate_utf8(texts[i].data(), texts[i].size())) {
      fail(ExitCode::unusable, "{}: {}[{}] is {}, expected valid UTF-8 of at least one character",
           metadata.source(), key, i, in_quotes(texts[i]));
    }
  }
}

std::vector<GgufTokenType> read_types(const GgufMetadata& metadata, std::size_t count) {
  std::vector<GgufTokenType> types;
  types.reserve(count);
  for (const std::int64_t number : metadata.integers(types_key, count)) {
    if (number != 1 && number != 3 && number != 4 && number != 5) {
      fail(ExitCode::unusable,
           "{}: {}[{}] is {}, expected 1 (normal), 3 (control), 4 (user-defined) or 5 (unused)",
           metadata.source(), types_key, types.size(), number);
    }
    types.push_back(static_cast<GgufTokenType>(number));
  }
  return types;
}

std::optional<TokenId> find_id(const GgufMetadata& metadata, std::string_view key, std::size_t vocab_size) {
  const auto id = metadata.find_integer(key, 0, vocab_size - 1);
  return id ? std::optional(static_cast<TokenId>(*id)) : std::nullopt;
}

}  // namespace

std::size_t GgufVocabulary::used() const {
  std::size_t used = types.size();
  while (used > 0 && types[used - 1] == GgufTokenType::unused) --used;
  return used;
}

std::optional<GgufVocabulary> parse_gguf_vocabulary(const GgufMetadata& metadata, std::size_t vocab_size) {
  const std::string_view model = metadata.text(model_key);
  if (model == "no_vocab" || model == "none") return std::nullopt;
  expect_text(metadata, model_key, "gpt2");
  expect_text(metadata, "tokenizer.ggml.pre", "qwen2");
  for (const std::string_view key : {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
                                     "tokenizer.ggml.add_sep_token", "tokenizer.ggml.add_space_prefix"}) {
    if (metadata.contains(key) && metadata.boolean(key)) {
      metadata.reject(key, "false: Qwen3's tokenizer adds nothing to a text");
    }
  }

  GgufVocabulary vocabulary;
  vocabulary.tokens = metadata.texts(tokens_key);
  if (vocabulary.tokens.size() != vocab_size) {
    metadata.reject(tokens_key, fmt::format("{}, the rows of token_embd.weight", vocab_size));
  }
  check_texts(metadata, tokens_key, vocabulary.tokens);
  vocabulary.types = read_types(metadata, vocab_size);
  vocabulary.merges = metadata.texts(merges_key);
  check_texts(metadata, merges_key, vocabulary.merges);
  vocabulary.eos = find_id(metadata, "tokenizer.ggml.eos_token_id", vocab_size);
  vocabulary.eot = find_id(metadata, "tokenizer.ggml.eot_token_id", vocab_size);
  vocabulary.bos = find_id(metadata, "tokenizer.ggml.bos_token_id", vocab_size);
  vocabulary.padding = find_id(metadata, "tokenizer.ggml.padding_token_id", vocab_size);
  if (!vocabulary.eos) metadata.reject("tokenizer.ggml.eos_token_id", "the id that ends a text");
  if (metadata.contains("tokenizer.chat_template")) {
    vocabulary.chat_template = metadata.text("tokenizer.chat_template");
  }
  return vocabulary;
}

void add_vocabulary(GgufPairs& pairs, const GgufVocabulary* vocabulary) {
  if (vocabulary == nullptr) return pairs.add_text(model_key, "no_vocab");
  std::vector<std::int32_t> types;
  types.reserve(vocabulary->types.size());
  for (const GgufTokenType type : vocabulary->types) types.push_back(static_cast<std::int32_t>(type));
  pairs.add_text(model_key, "gpt2");
  pairs.add_text("tokenizer.ggml.pre", "qwen2");
  pairs.add_texts(tokens_key, vocabulary->tokens);
  pairs.add_i32s(types_key, types);
  pairs.add_texts(merges_key, vocabulary->merges);
  const auto add_id = [&](std::string_view key, const std::optional<TokenId>& id) {
    if (id) pairs.add_u32(key, *id);
  };
  add_id("tokenizer.ggml.eos_token_id", vocabulary->eos);
  add_id("tokenizer.ggml.eot_token_id", vocabulary->eot);
  add_id("tokenizer.ggml.padding_token_id", vocabulary->padding);
  add_id("tokenizer.ggml.bos_token_id", vocabulary->bos);
  pairs.add_boolean("tokenizer.ggml.add_bos_token", false);
  if (vocabulary->chat_template) pairs.add_text("tokenizer.chat_template", *vocabulary->chat_template);
}

std::vector<TokenId> end_tokens(const GgufVocabulary& vocabulary) {
  std::set<TokenId> ids;
  if (vocabulary.eos) ids.insert(*vocabulary.eos);
  if (vocabulary.eot) ids.insert(*vocabulary.eot);
  for (TokenId id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (vocabulary.types[id] == GgufTokenType::control &&
        (token == "<|im_end|>" || token == "<|endoftext|>")) {
      ids.insert(id);
    }
  }
  return {ids.begin(), ids.end()};
}

}  // namespace fs::model

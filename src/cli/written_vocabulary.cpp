#include "cli/written_vocabulary.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/mapped_file.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace fs::cli {
namespace {

namespace files = std::filesystem;
using model::GgufTokenType;

constexpr std::size_t most_json = std::size_t{256} << 20;

bool is_file(const files::path& path) {
  std::error_code ignored;
  return files::is_regular_file(path, ignored);
}

/// As llama.cpp's converter: some checkpoints do not mark all of their control tokens as special.
bool looks_special(std::string_view token) { return token.starts_with("<|") && token.ends_with("|>"); }

/// A token of tokenizer_config.json: its text, or an object with the text as content.
std::optional<std::string_view> token_text(simdjson::dom::element config, std::string_view key) {
  std::string_view text;
  simdjson::dom::element value;
  if (config.at_key(key).get(value)) return std::nullopt;
  if (!value.get(text) || !value.at_key("content").get(text)) return text;
  return std::nullopt;
}

}  // namespace

WrittenVocabulary::WrittenVocabulary(const model::Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) {
    vocabulary_ = checkpoint.gguf()->vocabulary();
  } else if (const auto& file = checkpoint.tokenizer_file()) {
    read_tokenizer(*file, checkpoint.config().vocab_size);
    read_specials(file->parent_path());
    if (!vocabulary_->eos && !checkpoint.generation().eos_ids.empty()) {
      vocabulary_->eos = checkpoint.generation().eos_ids.front();
    }
    if (!vocabulary_->eos) {
      fail(ExitCode::unusable, "{}: no eos_token in tokenizer_config.json or config.json, which GGUF needs",
           file->parent_path().string());
    }
  }
}

void WrittenVocabulary::read_tokenizer(const files::path& file, std::size_t vocab_size) {
  tokenizer_ = JsonDocument::load(file, most_json);
  const text::TokenizerParts parts = text::read_tokenizer_json(*tokenizer_);
  model::GgufVocabulary& vocabulary = vocabulary_.emplace();
  if (!parts.nfc) {
    fail(ExitCode::unusable, "{}: normalizer is null, expected NFC, which tokenizer.ggml.pre \"qwen2\" means",
         file.string());
  }
  vocabulary.tokens = parts.tokens;
  vocabulary.types.assign(parts.tokens.size(), GgufTokenType::normal);
  for (std::size_t i = 0; i < parts.added.size(); ++i) {
    const text::AddedToken& token = parts.added[i];
    if (token.lstrip || token.rstrip || token.normalized) {
      fail(ExitCode::unusable,
           "{}: added_tokens[{}]: lstrip, rstrip or normalized is true, which GGUF cannot say", file.string(),
           i);
    }
    const bool control = token.special || looks_special(token.content);
    if (token.id >= vocabulary.tokens.size()) {  // ids continue without a gap: Tokenizer::build has checked
      vocabulary.tokens.resize(token.id + 1);
      vocabulary.types.resize(token.id + 1);
    }
    vocabulary.tokens[token.id] = texts_.emplace_back(token.content);
    vocabulary.types[token.id] = control ? GgufTokenType::control : GgufTokenType::user_defined;
  }
  while (vocabulary.tokens.size() < vocab_size) {
    vocabulary.tokens.push_back(texts_.emplace_back(fmt::format("[PAD{}]", vocabulary.tokens.size())));
    vocabulary.types.push_back(GgufTokenType::unused);
  }
  for (std::size_t i = 0; i < parts.merges.size(); ++i) {
    const auto& [left, right] = parts.merges[i];
    if (left.find(' ') != left.npos || right.find(' ') != right.npos) {
      fail(ExitCode::unusable, "{}: model.merges[{}]: a token with a blank, which GGUF cannot say",
           file.string(), i);
    }
    vocabulary.merges.push_back(texts_.emplace_back(fmt::format("{} {}", left, right)));
  }
}

void WrittenVocabulary::read_specials(const files::path& directory) {
  model::GgufVocabulary& vocabulary = *vocabulary_;
  const auto id_of = [&](std::string_view text) -> std::optional<TokenId> {
    for (TokenId id = 0; id < vocabulary.tokens.size(); ++id) {
      const bool added = vocabulary.types[id] == GgufTokenType::control ||
                         vocabulary.types[id] == GgufTokenType::user_defined;
      if (added && vocabulary.tokens[id] == text) return id;
    }
    return std::nullopt;
  };
  const files::path config_file = directory / "tokenizer_config.json";
  if (is_file(config_file)) {
    const JsonDocument config = JsonDocument::load(config_file, most_json);
    if (const auto text = token_text(config.root(), "eos_token")) vocabulary.eos = id_of(*text);
    if (const auto text = token_text(config.root(), "bos_token")) vocabulary.bos = id_of(*text);
    if (const auto text = token_text(config.root(), "pad_token")) vocabulary.padding = id_of(*text);
    bool adds = false;
    if (!config.root().at_key("add_bos_token").get(adds) && adds) {
      fail(ExitCode::unusable, "{}: add_bos_token is true, expected false", config_file.string());
    }
    std::string_view chat_template;
    if (!config.root().at_key("chat_template").get(chat_template)) {
      vocabulary.chat_template = texts_.emplace_back(chat_template);
    }
  }
  if (const files::path jinja = directory / "chat_template.jinja"; is_file(jinja)) {
    vocabulary.chat_template = texts_.emplace_back(read_file(jinja, most_json));
  }
  const JsonDocument config = JsonDocument::load(directory / "config.json", most_json);
  const auto fall_back = [&](std::optional<TokenId>& id, std::string_view key) {
    std::uint64_t value = 0;
    if (!id && !config.root().at_key(key).get(value) && value < vocabulary.tokens.size()) {
      id = static_cast<TokenId>(value);
    }
  };
  fall_back(vocabulary.eos, "eos_token_id");
  fall_back(vocabulary.bos, "bos_token_id");
  fall_back(vocabulary.padding, "pad_token_id");
}

}  // namespace fs::cli

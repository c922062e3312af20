#include "text/tokenizer.h"

#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/nfc.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"
#include "text/vocabulary_index.h"

namespace fs::text {
namespace {

constexpr std::size_t largest_tokenizer_json = std::size_t{256} << 20;

/// Patterns of the added tokens that are looked for before normalisation, or after it.
std::vector<AddedTokenFinder::Pattern> patterns(const TokenizerParts& parts, bool normalized) {
  std::vector<AddedTokenFinder::Pattern> result;
  for (const bool special : {true, false}) {  // Hugging Face's order; it decides only between equal patterns
    for (const AddedToken& token : parts.added) {
      if (token.normalized != normalized || token.special != special) continue;
      const auto composed = normalized && parts.nfc ? nfc(token.content) : std::nullopt;
      result.push_back({composed.value_or(token.content), token.id, token.lstrip, token.rstrip});
    }
  }
  return result;
}

}  // namespace

struct Tokenizer::Impl {
  Impl(const TokenizerParts& parts, const VocabularyIndex& index, const std::string& source)
      : normalise(parts.nfc),
        bpe(parts, index, source),
        raw_tokens(patterns(parts, false)),
        normalised_tokens(patterns(parts, true)) {}

  std::string_view bytes(TokenId id) const {
    return std::string_view(all_bytes).substr(bytes_begin[id], bytes_begin[id + 1] - bytes_begin[id]);
  }
  void append_token(std::string_view token) {
    all_bytes += byte_level_bytes(token);
    bytes_begin.push_back(all_bytes.size());
  }
  std::size_t size() const { return bytes_begin.size() - 1; }

  bool normalise;
  Bpe bpe;
  AddedTokenFinder raw_tokens, normalised_tokens;
  std::unordered_map<std::string, TokenId> added_ids;  // by content
  std::unordered_set<TokenId> special_ids;
  std::string all_bytes;  // of all tokens, in order of id
  std::vector<std::size_t> bytes_begin{0};
};

Tokenizer Tokenizer::build(const TokenizerParts& parts, const std::string& source) {
  const VocabularyIndex index(parts.tokens);
  if (const auto id = index.duplicate()) {
    fail(ExitCode::unusable, "{}: {}: {} has two ids, {} and {}", source, parts.tokens_key,
         quote(parts.tokens[*id]), index.find(parts.tokens[*id]).value_or(0), *id);
  }
  auto impl = std::make_unique<Impl>(parts, index, source);
  impl->bytes_begin.reserve(parts.tokens.size() + parts.added.size() + 1);
  for (const std::string_view token : parts.tokens) impl->append_token(token);
  for (std::size_t i = 0; i < parts.added.size(); ++i) {
    const AddedToken& token = parts.added[i];
    if (!impl->added_ids.emplace(token.content, token.id).second) {
      fail(ExitCode::unusable, "{}: added_tokens[{}].content: {} is there before", source, i,
           quote(token.content));
    }
    const auto in_vocabulary = index.find(token.content);
    const std::size_t expected = in_vocabulary.value_or(static_cast<TokenId>(impl->size()));
    if (token.id != expected) {
      fail(ExitCode::unusable, "{}: added_tokens[{}].id: {} has id {}, expected {}: {}", source, i,
           quote(token.content), token.id, expected,
           in_vocabulary ? "its id in model.vocab" : "ids continue those before without a gap");
    }
    if (!in_vocabulary) impl->append_token(token.content);
    if (token.special) impl->special_ids.insert(token.id);
  }
  return Tokenizer(std::move(impl));
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  const JsonDocument json = JsonDocument::load(path, largest_tokenizer_json);
  return build(read_tokenizer_json(json), json.source());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& source) {
  const JsonDocument document = JsonDocument::parse(json, source);
  return build(read_tokenizer_json(document), source);
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view utf8, AddedTokens added) const {
  if (!simdjson::validate_utf8(utf8.data(), utf8.size())) {
    fail(ExitCode::usage, "the text to encode is not valid UTF-8");
  }
  std::vector<TokenId> ids;
  ids.reserve(utf8.size() / 4 + 8);
  Bpe::Session bpe(impl_->bpe, utf8.size(), ids);
  std::deque<std::string> normalised;  // the session keeps views of the words it has seen

  const auto split = [added](const AddedTokenFinder& finder, std::string_view text) {
    return added == AddedTokens::recognise ? finder.split(text) : std::vector<Piece>{{text, std::nullopt}};
  };
  for (const Piece& raw : split(impl_->raw_tokens, utf8)) {
    if (raw.added) {
      ids.push_back(*raw.added);
      continue;
    }
    std::string_view text = raw.text;
    if (impl_->normalise) {
      if (auto composed = nfc(text)) text = normalised.emplace_back(*std::move(composed));
    }
    for (const Piece& piece : split(impl_->normalised_tokens, text)) {
      if (piece.added) {
        ids.push_back(*piece.added);
        continue;
      }
      WordScanner words(piece.text);
      for (std::string_view word = words.next(); !word.empty(); word = words.next()) bpe.encode(word);
    }
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string joined;
  for (const TokenId id : ids) joined += bytes(id);
  return lossy_utf8(joined).text;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id >= size())
    fail(ExitCode::usage, "unknown token id {}: this tokenizer's ids are 0 to {}", id, size() - 1);
  return impl_->bytes(id);
}

std::size_t Tokenizer::size() const { return impl_->size(); }

std::optional<TokenId> Tokenizer::added_token(std::string_view content) const {
  const auto found = impl_->added_ids.find(std::string(content));
  return found == impl_->added_ids.end() ? std::nullopt : std::optional(found->second);
}

bool Tokenizer::is_special(TokenId id) const { return impl_->special_ids.contains(id); }

}  // namespace fs::text

#include "text/tokenizer_json.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "text/code_point.h"
#include "text/pretokenizer.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace fs::text {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

/// A JSON value and how to name it in errors.
struct Value {
  element json;
  std::string source, key;

  /// Throws: this value was found where `expected` was.
  [[noreturn]] void reject(std::string_view expected) const {
    constexpr std::size_t most = 100;
    std::string found = simdjson::minify(json);
    if (found.size() > most) found = found.substr(0, most) + "…";
    fail(ExitCode::unusable, "{}: {}: found {}, expected {}", source, key, lossy_utf8(found).text, expected);
  }

  void require_null() const {
    if (!json.is_null()) reject("null: anything else is not implemented");
  }
  void require_false() const {
    if (boolean()) reject("false: true is not implemented");
  }
  void require_text(std::string_view expected) const {
    if (!json.is_string() || text() != expected) reject(quote(expected) + ": nothing else is implemented");
  }
  bool boolean() const {
    bool value = false;
    if (json.get(value)) reject("true or false");
    return value;
  }
  std::string_view text() const {
    std::string_view value;
    if (json.get(value)) reject("a string");
    return value;
  }
  TokenId id(std::size_t limit) const {
    std::uint64_t value = 0;
    if (json.get(value) || value >= limit) reject(fmt::format("an id below {}", limit));
    return static_cast<TokenId>(value);
  }
  array items() const {
    array value;
    if (json.get(value)) reject("an array");
    return value;
  }
  Value item(std::size_t index, element value) const {
    return {value, source, fmt::format("{}[{}]", key, index)};
  }
};

/// A JSON object that has all of the `required` keys, perhaps some of the `optional` ones, and no other.
class Fields {
 public:
  Fields(Value value, std::initializer_list<std::string_view> required,
         std::initializer_list<std::string_view> optional = {})
      : value_(std::move(value)) {
    object fields;
    if (value_.json.get(fields)) value_.reject("an object");
    for (const auto [key, field] : fields) {
      if (std::find(required.begin(), required.end(), key) == required.end() &&
          std::find(optional.begin(), optional.end(), key) == optional.end()) {
        child(std::string(key), field).reject("no such key: it is not implemented");
      }
      if (find(key)) child(std::string(key), field).reject("the key once");
      found_.emplace_back(key, field);
    }
    for (const std::string_view key : required) {
      if (!find(key)) fail(ExitCode::unusable, "{}: {} is missing", value_.source, name(key));
    }
  }

  /// A required field.
  Value at(std::string_view key) const { return *find(key); }

  std::optional<Value> find(std::string_view key) const {
    for (const auto& [found, field] : found_) {
      if (found == key) return child(key, field);
    }
    return std::nullopt;
  }

 private:
  /// Keys come from the file, so that they are made safe to print.
  std::string name(std::string_view key) const {
    std::string printable = quote(key);
    if (printable.size() == key.size() + 2) printable = std::string(key);
    return value_.key.empty() ? printable : value_.key + "." + printable;
  }
  Value child(std::string_view key, element field) const { return {field, value_.source, name(key)}; }

  Value value_;
  std::vector<std::pair<std::string_view, element>> found_;
};

/// Byte-level steps: offsets (trim_offsets) do not matter to ids.
void check_byte_level(const Value& value, bool splits) {
  const Fields fields(value, {"type"}, {"add_prefix_space", "trim_offsets", "use_regex"});
  fields.at("type").require_text("ByteLevel");
  for (const char* const key : {"add_prefix_space", "trim_offsets", "use_regex"}) {
    const auto field = fields.find(key);
    if (field) field->boolean();
    if (!splits || key == std::string_view("trim_offsets")) continue;
    if (!field) fail(ExitCode::unusable, "{}: {}.{} is missing", value.source, value.key, key);
    field->require_false();
  }
}

bool read_normalizer(const Value& value) {
  if (value.json.is_null()) return false;
  Fields(value, {"type"}).at("type").require_text("NFC");
  return true;
}

void check_pre_tokenizer(const Value& value) {
  const Fields sequence(value, {"type", "pretokenizers"});
  sequence.at("type").require_text("Sequence");
  const Value steps = sequence.at("pretokenizers");
  const array items = steps.items();
  if (items.size() != 2) steps.reject("two steps, Split and ByteLevel");

  const Fields split(steps.item(0, items.at(0)), {"type", "pattern", "behavior", "invert"});
  split.at("type").require_text("Split");
  Fields(split.at("pattern"), {"Regex"}).at("Regex").require_text(qwen2_pattern);
  split.at("behavior").require_text("Isolated");
  split.at("invert").require_false();
  check_byte_level(steps.item(1, items.at(1)), true);
}

void read_vocabulary(const Value& value, TokenizerParts& parts) {
  object vocabulary;
  if (value.json.get(vocabulary)) value.reject("an object of ids by token");
  // simdjson counts at most 2^24 - 1 members, and then says so by this number.
  if (vocabulary.size() >= 0xFFFFFF) value.reject("fewer than 16777215 tokens");
  parts.tokens.resize(vocabulary.size());
  std::vector<bool> taken(vocabulary.size());
  for (const auto [token, json] : vocabulary) {
    std::uint64_t id = 0;
    if (json.get(id) || id >= taken.size() || taken[id]) {
      Value{json, value.source, fmt::format("{}.{}", value.key, quote(token))}.reject(
          fmt::format("an id from 0 to {}, each once", taken.size() - 1));
    }
    taken[id] = true;
    parts.tokens[id] = token;
  }
}

void read_merges(const Value& value, TokenizerParts& parts) {
  const array merges = value.items();
  parts.merges.reserve(merges.size());
  bool pairs = false;
  for (const element merge : merges) {
    std::string_view text, left, right;
    const bool is_text = merge.get(text) == simdjson::SUCCESS;
    if (parts.merges.empty()) pairs = !is_text;
    if (is_text && !pairs) {
      const std::size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    } else if (array pair; pairs && merge.get(pair) == simdjson::SUCCESS && pair.size() == 2) {
      if (pair.at(0).get(left) || pair.at(1).get(right)) left = right = {};
    }
    if (left.empty() || right.empty()) {
      value.item(parts.merges.size(), merge)
          .reject(pairs ? R"(a pair of tokens, ["a", "b"])" : R"(two tokens and a space, "a b")");
    }
    parts.merges.emplace_back(left, right);
  }
}

void read_model(const Value& value, TokenizerParts& parts) {
  const Fields model(value, {"type", "vocab", "merges"},
                     {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                      "byte_fallback", "ignore_merges"});
  model.at("type").require_text("BPE");
  for (const char* const key : {"dropout", "unk_token"}) {
    if (const auto field = model.find(key)) field->require_null();
  }
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto field = model.find(key);
    if (field && !field->json.is_null()) field->require_text("");
  }
  for (const char* const key : {"fuse_unk", "byte_fallback", "ignore_merges"}) {
    if (const auto field = model.find(key)) field->require_false();
  }
  read_vocabulary(model.at("vocab"), parts);
  read_merges(model.at("merges"), parts);
}

void read_added_tokens(const Value& value, TokenizerParts& parts) {
  const array tokens = value.items();
  const std::size_t limit = parts.tokens.size() + tokens.size();
  for (const element json : tokens) {
    const Value item = value.item(parts.added.size(), json);
    const Fields fields(item, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.id = fields.at("id").id(limit);
    token.content = fields.at("content").text();
    if (token.content.empty()) fields.at("content").reject("at least one character");
    fields.at("single_word").require_false();
    token.lstrip = fields.at("lstrip").boolean();
    token.rstrip = fields.at("rstrip").boolean();
    token.normalized = fields.at("normalized").boolean();
    token.special = fields.at("special").boolean();
    parts.added.push_back(std::move(token));
  }
  // Such a pair would claim the same white space twice, which Hugging Face answers with overlapping pieces.
  const bool any_rstrip = std::any_of(parts.added.begin(), parts.added.end(),
                                      [](const AddedToken& token) { return token.rstrip; });
  for (std::size_t i = 0; any_rstrip && i < parts.added.size(); ++i) {
    const CodePoint first = code_point_at(parts.added[i].content.data());
    if (unicode::classes()[first.value] & unicode::space) {
      value.item(i, array(tokens).at(i))
          .reject("content without white space at its start, because another token has rstrip");
    }
  }
}

}  // namespace

TokenizerParts read_tokenizer_json(const JsonDocument& json) {
  const Fields root({json.root(), json.source(), ""},
                    {"version", "added_tokens", "normalizer", "pre_tokenizer", "decoder", "model"},
                    {"truncation", "padding", "post_processor"});
  root.at("version").require_text("1.0");
  for (const char* const key : {"truncation", "padding"}) {
    if (const auto field = root.find(key)) field->require_null();
  }
  check_pre_tokenizer(root.at("pre_tokenizer"));
  if (const auto post = root.find("post_processor"); post && !post->json.is_null())
    check_byte_level(*post, false);
  check_byte_level(root.at("decoder"), false);

  TokenizerParts parts;
  parts.nfc = read_normalizer(root.at("normalizer"));
  read_model(root.at("model"), parts);
  read_added_tokens(root.at("added_tokens"), parts);
  return parts;
}

}  // namespace fs::text

#include "model/json_object.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/quoted.h"

namespace fs::model {
namespace {

/// Shortest text that reads back as `value`, and as no integer: "6.0" where an integer is expected.
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

void check_unique_keys(simdjson::dom::element value, const std::string& source) {
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (!value.get(array)) {
    for (const simdjson::dom::element item : array) check_unique_keys(item, source);
  } else if (!value.get(object)) {
    std::vector<std::string_view> keys;
    for (const auto field : object) {
      keys.push_back(field.key);
      check_unique_keys(field.value, source);
    }
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) {
      fail(ExitCode::unusable, "{}: key {} appears twice in one object, expected once", source,
           in_quotes(*twice));
    }
  }
}

}  // namespace

JsonObject::JsonObject(simdjson::dom::element value, std::string where) : where_(std::move(where)) {
  if (value.get(object_))
    fail(ExitCode::unusable, "{}: found {}, expected an object", where_, describe(value));
}

std::optional<simdjson::dom::element> JsonObject::find(std::string_view key) const {
  simdjson::dom::element value;
  if (object_.at_key(key).get(value)) return std::nullopt;
  return value;
}

std::optional<simdjson::dom::element> JsonObject::find_set(std::string_view key) const {
  const auto value = find(key);
  return value && !value->is_null() ? value : std::nullopt;
}

simdjson::dom::element JsonObject::at(std::string_view key, std::string_view expected) const {
  const auto value = find(key);
  if (!value) fail(ExitCode::unusable, "{}: {} is missing, expected {}", where_, key, expected);
  return *value;
}

std::size_t JsonObject::integer(std::string_view key, std::size_t least, std::size_t most) const {
  const std::string expected = fmt::format("an integer from {} to {}", least, most);
  const auto value = at(key, expected);
  std::uint64_t number = 0;
  if (!value.is_uint64() && !value.is_int64()) reject(key, value, expected);
  if (value.get(number) || number < least || number > most) reject(key, value, expected);
  return number;
}

double JsonObject::number(std::string_view key, double least, double most) const {
  const std::string expected = fmt::format("a number from {} to {}", least, most);
  const auto value = at(key, expected);
  double number = 0;
  if (value.get(number) || !(number >= least && number <= most)) reject(key, value, expected);
  return number;
}

bool JsonObject::boolean(std::string_view key) const {
  const auto value = at(key, "true or false");
  bool flag = false;
  if (value.get(flag)) reject(key, value, "true or false");
  return flag;
}

std::string_view JsonObject::text(std::string_view key) const {
  const auto value = at(key, "a string");
  std::string_view string;
  if (value.get(string)) reject(key, value, "a string");
  return string;
}

void JsonObject::reject(std::string_view key, simdjson::dom::element found, std::string_view expected) const {
  fail(ExitCode::unusable, "{}: {} is {}, expected {}", where_, key, describe(found), expected);
}

std::string describe(simdjson::dom::element value) {
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY:
      return fmt::format("an array of {}", simdjson::dom::array(value).size());
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::STRING:
      return in_quotes(std::string_view(value));
    case simdjson::dom::element_type::INT64:
      return fmt::format("{}", std::int64_t(value));
    case simdjson::dom::element_type::UINT64:
      return fmt::format("{}", std::uint64_t(value));
    case simdjson::dom::element_type::DOUBLE:
      return number_text(double(value));
    case simdjson::dom::element_type::BOOL:
      return bool(value) ? "true" : "false";
    case simdjson::dom::element_type::NULL_VALUE:
      break;
  }
  return "null";
}

void check_unique_keys(const JsonDocument& document) {
  check_unique_keys(document.root(), document.source());
}

}  // namespace fs::model

#include "model/gguf_metadata.h"

#include <charconv>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "model/quoted.h"

namespace fs::model {
namespace {

template <class Number>
Number load(const std::byte* data) {
  Number value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

/// An integer of any type; nothing if it is no integer or beyond int64.
std::optional<std::int64_t> integer_at(GgufValueType type, const std::byte* data) {
  switch (type) {
    case GgufValueType::u8:
      return load<std::uint8_t>(data);
    case GgufValueType::i8:
      return load<std::int8_t>(data);
    case GgufValueType::u16:
      return load<std::uint16_t>(data);
    case GgufValueType::i16:
      return load<std::int16_t>(data);
    case GgufValueType::u32:
      return load<std::uint32_t>(data);
    case GgufValueType::i32:
      return load<std::int32_t>(data);
    case GgufValueType::i64:
      return load<std::int64_t>(data);
    case GgufValueType::u64: {
      const auto value = load<std::uint64_t>(data);
      if (value > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The double nearest to the shortest decimal that rounds to `value`; infinity and NaN as they are.
double shortest_decimal(float value) {
  char digits[32];
  const auto written = std::to_chars(digits, digits + sizeof digits, value);
  double wide = 0;
  std::from_chars(digits, written.ptr, wide);
  return wide;
}

std::string_view plural_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::string:
      return "strings";
    case GgufValueType::f32:
    case GgufValueType::f64:
      return "floats";
    case GgufValueType::boolean:
      return "booleans";
    default:
      return "integers";
  }
}

}  // namespace

std::size_t value_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::u8:
    case GgufValueType::i8:
    case GgufValueType::boolean:
      return 1;
    case GgufValueType::u16:
    case GgufValueType::i16:
      return 2;
    case GgufValueType::u32:
    case GgufValueType::i32:
    case GgufValueType::f32:
      return 4;
    case GgufValueType::u64:
    case GgufValueType::i64:
    case GgufValueType::f64:
      return 8;
    case GgufValueType::string:
    case GgufValueType::array:
      break;
  }
  return 0;
}

std::string describe(const GgufValue& value) {
  switch (value.type) {
    case GgufValueType::string:
      return in_quotes(text_of(value.bytes));
    case GgufValueType::array:
      return fmt::format("an array of {} {}", value.count, plural_of(value.element));
    case GgufValueType::boolean:
      return load<std::uint8_t>(value.bytes.data()) != 0 ? "true" : "false";
    case GgufValueType::f32:
      return fmt::format("{}", load<float>(value.bytes.data()));
    case GgufValueType::f64:
      return fmt::format("{}", load<double>(value.bytes.data()));
    case GgufValueType::u64:
      return fmt::format("{}", load<std::uint64_t>(value.bytes.data()));
    default:
      return fmt::format("{}", *integer_at(value.type, value.bytes.data()));
  }
}

void GgufMetadata::reject(std::string_view key, std::string_view expected) const {
  const auto found = values_.find(key);
  if (found == values_.end())
    fail(ExitCode::unusable, "{}: {} is missing, expected {}", source_, key, expected);
  fail(ExitCode::unusable, "{}: {} is {}, expected {}", source_, key, describe(found->second), expected);
}

const GgufValue& GgufMetadata::at(std::string_view key, std::string_view expected) const {
  const auto found = values_.find(key);
  if (found == values_.end()) reject(key, expected);
  return found->second;
}

std::size_t GgufMetadata::integer(std::string_view key, std::size_t least, std::size_t most) const {
  const std::string expected = fmt::format("an integer from {} to {}", least, most);
  const GgufValue& value = at(key, expected);
  const auto number = integer_at(value.type, value.bytes.data());
  if (!number || *number < 0 || static_cast<std::size_t>(*number) < least ||
      static_cast<std::size_t>(*number) > most) {
    reject(key, expected);
  }
  return static_cast<std::size_t>(*number);
}

std::optional<std::size_t> GgufMetadata::find_integer(std::string_view key, std::size_t least,
                                                      std::size_t most) const {
  if (!contains(key)) return std::nullopt;
  return integer(key, least, most);
}

double GgufMetadata::number(std::string_view key, double least, double most) const {
  const std::string expected = fmt::format("a floating-point number from {} to {}", least, most);
  const GgufValue& value = at(key, expected);
  double number = 0;
  if (value.type == GgufValueType::f32) {
    number = shortest_decimal(load<float>(value.bytes.data()));
  } else if (value.type == GgufValueType::f64) {
    number = load<double>(value.bytes.data());
  } else {
    reject(key, expected);
  }
  if (!(number >= least && number <= most)) reject(key, expected);  // NaN included
  return number;
}

bool GgufMetadata::boolean(std::string_view key) const {
  const GgufValue& value = at(key, "true or false");
  if (value.type != GgufValueType::boolean) reject(key, "true or false");
  return load<std::uint8_t>(value.bytes.data()) != 0;
}

std::string_view GgufMetadata::text(std::string_view key) const {
  const GgufValue& value = at(key, "a string");
  if (value.type != GgufValueType::string) reject(key, "a string");
  return text_of(value.bytes);
}

std::vector<std::string_view> GgufMetadata::texts(std::string_view key) const {
  constexpr std::string_view expected = "an array of strings";
  const GgufValue& value = at(key, expected);
  if (value.type != GgufValueType::array || value.element != GgufValueType::string) reject(key, expected);
  std::vector<std::string_view> texts;
  texts.reserve(value.count);
  std::size_t offset = 0;
  for (std::size_t i = 0; i < value.count; ++i) {  // lengths were checked by parse_gguf
    const auto length = load<std::uint64_t>(value.bytes.data() + offset);
    texts.push_back(text_of(value.bytes.subspan(offset + sizeof length, length)));
    offset += sizeof length + length;
  }
  return texts;
}

std::vector<std::int64_t> GgufMetadata::integers(std::string_view key,
                                                 std::optional<std::size_t> count) const {
  const std::string expected =
      count ? fmt::format("an array of {} integers", *count) : std::string("an array of integers");
  const GgufValue& value = at(key, expected);
  if (value.type != GgufValueType::array || (count && value.count != *count)) reject(key, expected);
  std::vector<std::int64_t> numbers;
  numbers.reserve(value.count);
  const std::size_t step = value_bytes(value.element);
  for (std::size_t i = 0; i < value.count; ++i) {
    const auto number = integer_at(value.element, value.bytes.data() + i * step);
    if (!number) reject(key, expected);
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace fs::model

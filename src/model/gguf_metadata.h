#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fs::model {

/// The type of a metadata value, by the numbers of the file format.
enum class GgufValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};

/// Bytes of a value; 0 for strings and arrays, which say their length themselves.
std::size_t value_bytes(GgufValueType type);

/// A metadata value: a view into the file.
struct GgufValue {
  GgufValueType type = GgufValueType::u8;
  GgufValueType element = GgufValueType::u8;  ///< of an array; never `array`
  std::size_t count = 0;                      ///< elements of an array
  std::span<const std::byte> bytes;           ///< a string's text, an array's elements, or the value itself
};

/// The pairs of a GGUF file, read key by key. Every error is Error(unusable) and names the file, the key,
/// what was found and what is expected.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  explicit GgufMetadata(std::string source) : source_(std::move(source)) {}

  const std::string& source() const { return source_; }
  const std::map<std::string_view, GgufValue>& values() const { return values_; }
  /// False if the key is there already.
  bool insert(std::string_view key, const GgufValue& value) { return values_.emplace(key, value).second; }

  bool contains(std::string_view key) const { return values_.contains(key); }
  /// Values of any integer type.
  std::size_t integer(std::string_view key, std::size_t least, std::size_t most) const;
  std::optional<std::size_t> find_integer(std::string_view key, std::size_t least, std::size_t most) const;
  /// An fp32 or fp64 value. An fp32 one comes back as the shortest decimal that rounds to it: GGUF has fp32
  /// where the checkpoint it was made from had a decimal, and 1e-6 is to stay 1e-6.
  double number(std::string_view key, double least, double most) const;
  bool boolean(std::string_view key) const;
  std::string_view text(std::string_view key) const;
  /// An array of strings; of any integer type. `count`, where given, is the length it must have.
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key, std::optional<std::size_t> count = {}) const;

  [[noreturn]] void reject(std::string_view key, std::string_view expected) const;

 private:
  const GgufValue& at(std::string_view key, std::string_view expected) const;

  std::string source_;
  std::map<std::string_view, GgufValue> values_;
};

/// A value in a few words: `"qwen3"`, `an array of 151936 strings`, `28`.
std::string describe(const GgufValue& value);

}  // namespace fs::model

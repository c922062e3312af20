#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fs::model {

/// How the elements of a weight matrix are stored.
enum class Dtype { f32, f16, bf16 };

/// "F32", "F16", "BF16": safetensors' spelling.
std::string_view name(Dtype dtype);
/// The inverse of name(); nothing for a dtype that `fs` does not read.
std::optional<Dtype> dtype_from_name(std::string_view name);
/// Bytes of one element.
std::size_t element_bytes(Dtype dtype);

/// bfloat16 is the upper half of an fp32: exact.
inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
/// Round to nearest, ties to even. `value` must be finite.
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}
/// IEEE 754 binary16, subnormals included: exact.
float f16_to_float(std::uint16_t bits);

/// Decodes `out.size()` consecutive elements at `data` to fp32: exact for every Dtype.
void decode(Dtype dtype, const std::byte* data, std::span<float> out);

}  // namespace fs::model

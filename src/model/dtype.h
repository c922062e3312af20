#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fs::model {

/// How the elements of a weight matrix are stored, row by row. Block formats cut each row into blocks of
/// neighbouring elements that share a scale; a last block that is not full is filled up with zeros, so that
/// every row begins with a block of its own.
///
///   f32, f16, bf16   blocks of one element
///   q8_0             GGUF's: 32 elements; an fp16 scale d, then 32 int8 q.                weight = d · q
///   int4             128 elements; an fp16 scale d (either sign), then 64 bytes: element e is n, the four
///                    bits from 4·(e % 64 / 8) up of the little-endian 32-bit word e / 64 · 8 + e % 8: eight
///                    neighbours side by side, as a vector register wants them.      weight = d · (n − 8)
enum class Dtype { f32, f16, bf16, q8_0, int4 };
inline constexpr std::size_t dtype_count = 5;

/// "F32", "F16", "BF16" (safetensors' spelling), "Q8_0" (GGUF's), "INT4".
std::string_view name(Dtype dtype);
/// The dtype of a safetensors file by its name there: F32, F16 or BF16; nothing for any other.
std::optional<Dtype> dtype_from_name(std::string_view name);

/// Elements and bytes of a block.
std::size_t block_elements(Dtype dtype);
std::size_t block_bytes(Dtype dtype);
/// Bytes of a row of `cols` elements, the filling of its last block included.
inline std::size_t row_bytes(Dtype dtype, std::size_t cols) {
  return (cols + block_elements(dtype) - 1) / block_elements(dtype) * block_bytes(dtype);
}

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
/// Round to nearest, ties to even; infinite from 65520 on.
std::uint16_t float_to_f16(float value);

/// Decodes `out.size()` consecutive elements to fp32. `data`, which need not be aligned, is where a block
/// begins. Exact for f32, f16 and bf16; the product of the block formats is rounded once (int4's is exact).
void decode(Dtype dtype, const std::byte* data, std::span<float> out);

}  // namespace fs::model

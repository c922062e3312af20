#include "model/dtype.h"

#include <algorithm>
#include <cstring>

namespace fs::model {
namespace {

/// The element at `data`, which need not be aligned: a tensor may start at any byte of its file.
template <class Bits>
Bits load(const std::byte* data) {
  Bits bits;
  std::memcpy(&bits, data, sizeof bits);
  return bits;
}

/// Without branches, so that decode() vectorises: moves exponent and fraction into place, then corrects the
/// exponent's bias (15 → 127) by an exact multiplication, which normalises subnormals on the way. Infinity
/// and NaN are the one exponent that this gets wrong.
float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16, magnitude = bits & 0x7FFFU;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  const std::uint32_t special = magnitude >= 0x7C00U ? 0x7F800000U : 0U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

constexpr std::size_t q8_0_elements = 32, int4_elements = 128;
constexpr std::size_t scale_bytes = sizeof(std::uint16_t);

/// One block each; `count` ≤ the elements of a block.
void decode_q8_0(const std::byte* block, float* to, std::size_t count) {
  const float scale = half_to_float(load<std::uint16_t>(block));
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = scale * static_cast<float>(load<std::int8_t>(block + scale_bytes + i));
  }
}

void decode_int4(const std::byte* block, float* to, std::size_t count) {
  const float scale = half_to_float(load<std::uint16_t>(block));
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = load<std::uint32_t>(block + scale_bytes + (i / 64 * 8 + i % 8) * sizeof(std::uint32_t));
    const auto nibble = static_cast<int>(word >> i % 64 / 8 * 4 & 15U);
    to[i] = scale * static_cast<float>(nibble - 8);
  }
}

/// Decodes block by block.
template <class DecodeBlock>
void decode_blocks(Dtype dtype, const std::byte* data, std::span<float> out, DecodeBlock decode_block) {
  const std::size_t elements = block_elements(dtype);
  for (std::size_t i = 0; i < out.size(); i += elements, data += block_bytes(dtype)) {
    decode_block(data, out.data() + i, std::min(elements, out.size() - i));
  }
}

}  // namespace

std::string_view name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "F32";
    case Dtype::f16:
      return "F16";
    case Dtype::bf16:
      return "BF16";
    case Dtype::q8_0:
      return "Q8_0";
    case Dtype::int4:
      return "INT4";
  }
  return "";
}

std::optional<Dtype> dtype_from_name(std::string_view text) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    if (name(dtype) == text) return dtype;
  }
  return std::nullopt;
}

std::size_t block_elements(Dtype dtype) {
  return dtype == Dtype::q8_0 ? q8_0_elements : dtype == Dtype::int4 ? int4_elements : 1;
}

std::size_t block_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return sizeof(float);
    case Dtype::f16:
    case Dtype::bf16:
      break;
    case Dtype::q8_0:
      return scale_bytes + q8_0_elements;
    case Dtype::int4:
      return scale_bytes + int4_elements / 2;
  }
  return sizeof(std::uint16_t);
}

float f16_to_float(std::uint16_t bits) { return half_to_float(bits); }

std::uint16_t float_to_f16(float value) {
  constexpr std::uint32_t infinity = 0x7C00, smallest_normal = 0x38800000,
                          too_large = 0x47800000;  // 2^-14, 2^16
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = infinity | 0x200U;  // NaN
  } else if (magnitude >= too_large) {
    half = infinity;
  } else if (magnitude >= smallest_normal) {  // the exponent's bias from 127 to 15, then 13 bits less
    half = (magnitude - (112U << 23) + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  } else {  // beside 0.5 the last bit of an fp32 is worth 2^-24, as that of a subnormal half
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
           std::bit_cast<std::uint32_t>(0.5F);
  }
  return static_cast<std::uint16_t>(sign | half);
}

void decode(Dtype dtype, const std::byte* data, std::span<float> out) {
  const std::size_t count = out.size();
  float* const to = out.data();
  switch (dtype) {
    case Dtype::f32:
      if (count != 0) std::memcpy(to, data, count * sizeof(float));
      return;
    case Dtype::f16:
      for (std::size_t i = 0; i < count; ++i) to[i] = half_to_float(load<std::uint16_t>(data + 2 * i));
      return;
    case Dtype::bf16:
      for (std::size_t i = 0; i < count; ++i) to[i] = bf16_to_float(load<std::uint16_t>(data + 2 * i));
      return;
    case Dtype::q8_0:
      decode_blocks(dtype, data, out, decode_q8_0);
      return;
    case Dtype::int4:
      decode_blocks(dtype, data, out, decode_int4);
      return;
  }
}

}  // namespace fs::model

#include <array>
#include <bit>
#include <cstring>

#include "model/ggml_type.h"

namespace fs::model {
namespace {

std::uint8_t byte_at(const std::byte* data) { return std::to_integer<std::uint8_t>(*data); }

float half_at(const std::byte* data) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, data, sizeof bits);
  return f16_to_float(bits);
}

/// fp16 d, 16 bytes: the low nibbles are elements 0 to 15, the high ones 16 to 31.  x = d·(q − 8)
void block_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (std::size_t i = 0; i < 16; ++i) {
    const int pair = byte_at(block + 2 + i);
    out[i] = d * static_cast<float>((pair & 15) - 8);
    out[i + 16] = d * static_cast<float>((pair >> 4) - 8);
  }
}

/// fp16 d, fp16 m, nibbles as in Q4_0.  x = d·q + m
void block_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (std::size_t i = 0; i < 16; ++i) {
    const int pair = byte_at(block + 4 + i);
    out[i] = d * static_cast<float>(pair & 15) + m;
    out[i + 16] = d * static_cast<float>(pair >> 4) + m;
  }
}

/// The 6-bit scales and minima of the eight groups of a Q4_K or Q5_K block, from their 12 bytes: those of
/// groups 0 to 3 are the low six bits of bytes 0 to 3 and 4 to 7, whose upper two bits top the nibbles of
/// bytes 8 to 11, the scales and minima of groups 4 to 7.
struct GroupScales {
  std::array<std::uint8_t, 8> scale, minimum;

  explicit GroupScales(const std::byte* packed) {
    for (std::size_t i = 0; i < 4; ++i) {
      const unsigned s = byte_at(packed + i), m = byte_at(packed + 4 + i), both = byte_at(packed + 8 + i);
      scale[i] = static_cast<std::uint8_t>(s & 63U);
      minimum[i] = static_cast<std::uint8_t>(m & 63U);
      scale[i + 4] = static_cast<std::uint8_t>((both & 15U) | ((s >> 6U) << 4U));
      minimum[i + 4] = static_cast<std::uint8_t>((both >> 4U) | ((m >> 6U) << 4U));
    }
  }
};

/// fp16 d, fp16 dmin, GroupScales, then with_fifth_bit 32 bytes of fifth bits (bit g of byte i belongs to
/// element i of group g), then 4 × 32 bytes: the low nibbles are one group of 32, the high ones the next.
/// x = (d·scale)·q − dmin·minimum
template <bool with_fifth_bit>
void block_q4_or_5_k(const std::byte* block, float* out) {
  const float d = half_at(block), d_minimum = half_at(block + 2);
  const GroupScales groups(block + 4);
  const std::byte* const fifth = block + 16;
  const std::byte* const nibbles = fifth + (with_fifth_bit ? 32 : 0);
  for (std::size_t group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(groups.scale[group]);
    const float minimum = d_minimum * static_cast<float>(groups.minimum[group]);
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned pair = byte_at(nibbles + 32 * (group / 2) + i);
      unsigned q = group % 2 == 0 ? pair & 15U : pair >> 4U;
      if (with_fifth_bit) q |= ((byte_at(fifth + i) >> group) & 1U) << 4U;
      out[32 * group + i] = scale * static_cast<float>(q) - minimum;
    }
  }
}

/// 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales, fp16 d.  x = (d·scale)·(q − 32)
void block_q6_k(const std::byte* block, float* out) {
  const std::byte* const low = block;
  const std::byte* const high = block + 128;
  const std::byte* const scales = block + 192;
  const float d = half_at(block + 208);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t half = i / 128, quarter = i % 128 / 32, lane = i % 32;
    const unsigned nibbles = byte_at(low + 64 * half + 32 * (quarter % 2) + lane);
    const unsigned pairs = byte_at(high + 32 * half + lane);
    const unsigned q = (quarter < 2 ? nibbles & 15U : nibbles >> 4U) | ((pairs >> (2 * quarter)) & 3U) << 4U;
    const float scale = d * static_cast<float>(std::bit_cast<std::int8_t>(scales[i / 16]));
    out[i] = scale * static_cast<float>(static_cast<int>(q) - 32);
  }
}

template <class Block>
void each_block(GgmlType type, const std::byte* data, std::span<float> out, const Block& block) {
  const GgmlLayout& size = layout(type);
  for (std::size_t i = 0; i < out.size() / size.block_elements; ++i) {
    block(data + i * size.block_bytes, out.data() + i * size.block_elements);
  }
}

}  // namespace

void dequantize(GgmlType type, const std::byte* data, std::span<float> out) {
  switch (type) {
    case GgmlType::f32:
    case GgmlType::f16:
    case GgmlType::bf16:
    case GgmlType::q8_0:
      return decode(*native_dtype(type), data, out);
    case GgmlType::q4_0:
      return each_block(type, data, out, block_q4_0);
    case GgmlType::q4_1:
      return each_block(type, data, out, block_q4_1);
    case GgmlType::q4_k:
      return each_block(type, data, out, block_q4_or_5_k<false>);
    case GgmlType::q5_k:
      return each_block(type, data, out, block_q4_or_5_k<true>);
    case GgmlType::q6_k:
      return each_block(type, data, out, block_q6_k);
  }
}

}  // namespace fs::model

#pragma once
#include <cstdint>

namespace fs::gpu {

/// bfloat16 as stored: the upper half of an fp32.
struct Bf16 {
  std::uint16_t bits;
};

/// IEEE 754 binary16 as stored.
struct F16 {
  std::uint16_t bits;
};

/// 16 bytes that move with one instruction.
struct alignas(16) F32x4 {
  float x, y, z, w;
};
struct alignas(16) U32x4 {
  std::uint32_t x, y, z, w;
};

}  // namespace fs::gpu

#pragma once
#include "gpu.h"
#include "kernels.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// Each format says how many weights a chunk of 16 bytes holds and decodes them to fp32, exactly.
struct Bf16Weights {
  static constexpr int per_chunk = 8;
  FS_DEVICE static void decode(const U32x4& chunk, float (&w)[8]) {
    const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    FS_UNROLL
    for (int i = 0; i < 4; ++i) {
      w[2 * i] = as_float(words[i] << 16U);
      w[2 * i + 1] = as_float(words[i] & 0xFFFF0000U);
    }
  }
};

struct F16Weights {
  static constexpr int per_chunk = 8;
  FS_DEVICE static void decode(const U32x4& chunk, float (&w)[8]) {
    const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    FS_UNROLL
    for (int i = 0; i < 4; ++i) {
      w[2 * i] = to_float(F16{static_cast<std::uint16_t>(words[i] & 0xFFFFU)});
      w[2 * i + 1] = to_float(F16{static_cast<std::uint16_t>(words[i] >> 16U)});
    }
  }
};

struct F32Weights {
  static constexpr int per_chunk = 4;
  FS_DEVICE static void decode(const U32x4& chunk, float (&w)[4]) {
    w[0] = as_float(chunk.x);
    w[1] = as_float(chunk.y);
    w[2] = as_float(chunk.z);
    w[3] = as_float(chunk.w);
  }
};

/// Calls `use` with the type of a format: the one place where a run-time format becomes a kernel.
template <class Use>
void with_format(WeightFormat format, Use use) {
  switch (format) {
    case WeightFormat::bf16:
      return use(Bf16Weights{});
    case WeightFormat::f16:
      return use(F16Weights{});
    case WeightFormat::f32:
      return use(F32Weights{});
  }
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#pragma once
#include "gpu.h"
#include "kernels.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// Each format says how many weights a chunk of 16 bytes holds and decodes four of them, a part of the chunk,
/// to fp32, exactly. `chunks_per_scale` neighbouring chunks of a row share an fp16 factor that decode()
/// leaves out; 0: there is none.
struct Bf16Weights {
  static constexpr WeightFormat format = WeightFormat::bf16;
  static constexpr int per_chunk = 8, chunks_per_scale = 0;
  FS_DEVICE static void decode(const U32x4& chunk, int part, float (&w)[4]) {
    const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    FS_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t word = words[2 * part + i];
      w[2 * i] = as_float(word << 16U);
      w[2 * i + 1] = as_float(word & 0xFFFF0000U);
    }
  }
};

struct F16Weights {
  static constexpr WeightFormat format = WeightFormat::f16;
  static constexpr int per_chunk = 8, chunks_per_scale = 0;
  FS_DEVICE static void decode(const U32x4& chunk, int part, float (&w)[4]) {
    const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    FS_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t word = words[2 * part + i];
      w[2 * i] = to_float(F16{static_cast<std::uint16_t>(word & 0xFFFFU)});
      w[2 * i + 1] = to_float(F16{static_cast<std::uint16_t>(word >> 16U)});
    }
  }
};

struct F32Weights {
  static constexpr WeightFormat format = WeightFormat::f32;
  static constexpr int per_chunk = 4, chunks_per_scale = 0;
  FS_DEVICE static void decode(const U32x4& chunk, int, float (&w)[4]) {
    w[0] = as_float(chunk.x);
    w[1] = as_float(chunk.y);
    w[2] = as_float(chunk.z);
    w[3] = as_float(chunk.w);
  }
};

/// Blocks of 32 int8.
struct Q8Weights {
  static constexpr WeightFormat format = WeightFormat::q8_0;
  static constexpr int per_chunk = 16, chunks_per_scale = 2;
  FS_DEVICE static void decode(const U32x4& chunk, int part, float (&w)[4]) {
    const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    FS_UNROLL
    for (int i = 0; i < 4; ++i)
      w[i] = static_cast<float>(static_cast<std::int8_t>(words[part] >> (8 * i) & 0xFFU));
  }
};

/// Blocks of 128 nibbles n; weight i of a chunk is n − 8 from the bits 4·(i % 8) up of word i / 8.
struct Int4Weights {
  static constexpr WeightFormat format = WeightFormat::int4;
  static constexpr int per_chunk = 32, chunks_per_scale = 4;
  FS_DEVICE static void decode(const U32x4& chunk, int part, float (&w)[4]) {
    const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    const std::uint32_t nibbles = words[part / 2] >> (part % 2 * 16);
    FS_UNROLL
    for (int i = 0; i < 4; ++i) {
      // A nibble where it lies, in the fraction of 2^23, is 2^23 + n·16^i: two instructions a weight, and
      // exact.
      const float place = 1.0F / static_cast<float>(1 << (4 * i));
      w[i] = fma(as_float(0x4B000000U | (nibbles & (0xFU << (4 * i)))), place, -8388608.0F * place - 8.0F);
    }
  }
};

/// fp16 factors of a row of `chunks`.
template <class Weights>
FS_DEVICE int scales_of_row(int chunks) {
  if constexpr (Weights::chunks_per_scale == 0) {
    return 0;
  } else {
    return (chunks + Weights::chunks_per_scale - 1) / Weights::chunks_per_scale;
  }
}

/// The factor of one chunk, 1 where the format has none.
template <class Weights>
FS_DEVICE float scale_at(const F16* scales, int row, int chunk, int chunks) {
  if constexpr (Weights::chunks_per_scale == 0) {
    return 1.0F;
  } else {
    return to_float(
        scales[static_cast<std::size_t>(row) * static_cast<std::size_t>(scales_of_row<Weights>(chunks)) +
               static_cast<std::size_t>(chunk / Weights::chunks_per_scale)]);
  }
}

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
    case WeightFormat::q8_0:
      return use(Q8Weights{});
    case WeightFormat::int4:
      return use(Int4Weights{});
  }
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

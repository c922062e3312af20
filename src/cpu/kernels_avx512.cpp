#include "cpu/avx512.h"
#include "cpu/vector_math.h"

namespace fs::cpu {
namespace {

constexpr Kernels table(const char* name, const WeightKernels* bf16, const RoundedAttention* attention_bf16) {
  return {
      .name = name,
      .f32 = &avx512_f32,
      .f16 = &avx512_f16,
      .bf16 = bf16,
      .q8_0 = &avx512_q8_0,
      .int4 = &avx512_int4,
      .cache_f32 = &avx512_cache_f32,
      .cache_f16 = &avx512_cache_f16,
      .cache_bf16 = &avx512_cache_bf16,
      .attention_bf16 = attention_bf16,
      .rms_norm = rms_norm,
      .rope = rope,
      .softmax_step = softmax_step,
      .swiglu = swiglu,
      .add = add,
      .scale = scale,
  };
}

}  // namespace

constexpr Kernels avx512_kernels = table("avx512", &avx512_bf16, nullptr);
constexpr Kernels avx512bf16_kernels = table("avx512bf16", &avx512bf16_bf16, &avx512bf16_attention);

}  // namespace fs::cpu

#include "cpu/avx2.h"
#include "cpu/vector_math.h"

namespace fs::cpu {

constexpr Kernels avx2_kernels{
    .name = "avx2",
    .f32 = &avx2_f32,
    .f16 = &avx2_f16,
    .bf16 = &avx2_bf16,
    .q8_0 = &avx2_q8_0,
    .int4 = &avx2_int4,
    .cache_f32 = &avx2_cache_f32,
    .cache_f16 = &avx2_cache_f16,
    .cache_bf16 = &avx2_cache_bf16,
    .attention_bf16 = nullptr,
    .rms_norm = rms_norm,
    .rope = rope,
    .softmax_step = softmax_step,
    .swiglu = swiglu,
    .add = add,
    .scale = scale,
};

}  // namespace fs::cpu

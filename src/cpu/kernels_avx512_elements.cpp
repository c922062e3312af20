#include "cpu/avx512.h"
#include "cpu/vector_dots.h"
#include "cpu/vector_elements.h"

namespace fs::cpu {

constexpr WeightKernels avx512_f32{{{nullptr, nullptr, dots<Elements<F32>>}, &f32_gemm<panel<F32>>}};
constexpr WeightKernels avx512_f16{{{nullptr, nullptr, dots<Elements<F16>>}, &f32_gemm<panel<F16>>}};

}  // namespace fs::cpu

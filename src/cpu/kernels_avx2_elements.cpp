#include "cpu/avx2.h"
#include "cpu/vector_dots.h"
#include "cpu/vector_pairs.h"

namespace fs::cpu {

constexpr WeightKernels avx2_f32{{{nullptr, nullptr, dots<Elements<F32>>}, &f32_gemm<panel<F32>>}};
constexpr WeightKernels avx2_f16{{{nullptr, nullptr, dots<Elements<F16>>}, &f32_gemm<panel<F16>>}};
constexpr WeightKernels avx2_bf16{{{prepared_pairs, prepare_pairs, dots<Pairs>}, &f32_gemm<panel_bf16>}};

}  // namespace fs::cpu

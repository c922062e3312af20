#include "cpu/avx512.h"
#include "cpu/vector_dots.h"
#include "cpu/vector_elements.h"

namespace fs::cpu {

constexpr WeightKernels avx512_f32{{nullptr, nullptr, dots<Elements<F32>>}, panel<F32>, nullptr, nullptr};
constexpr WeightKernels avx512_f16{{nullptr, nullptr, dots<Elements<F16>>}, panel<F16>, nullptr, nullptr};
constexpr WeightKernels avx512_bf16{{}, nullptr, nullptr, nullptr, &avx512_pairs};
constexpr WeightKernels avx512bf16_bf16{{}, nullptr, nullptr, &avx512bf16_products, &avx512_pairs};

}  // namespace fs::cpu

#include "cpu/avx512.h"
#include "cpu/vector_dots.h"
#include "cpu/vector_elements.h"

namespace fs::cpu {
namespace {

constexpr DotKernels dots_bf16{prepared_pairs, prepare_pairs, dots<Pairs>};

}  // namespace

constexpr WeightKernels avx512_f32{{nullptr, nullptr, dots<Elements<F32>>}, panel<F32>, nullptr, nullptr};
constexpr WeightKernels avx512_f16{{nullptr, nullptr, dots<Elements<F16>>}, panel<F16>, nullptr, nullptr};
constexpr WeightKernels avx512_bf16{dots_bf16, panel_bf16, nullptr, nullptr};
constexpr WeightKernels avx512bf16_bf16{dots_bf16, panel_bf16, nullptr, &avx512bf16_pairs};

}  // namespace fs::cpu

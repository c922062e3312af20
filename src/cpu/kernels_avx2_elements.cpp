#include "cpu/avx2.h"
#include "cpu/vector_dots.h"
#include "cpu/vector_pairs.h"

namespace fs::cpu {

constexpr WeightKernels avx2_f32{{nullptr, nullptr, dots<Elements<F32>>}, panel<F32>, nullptr, nullptr};
constexpr WeightKernels avx2_f16{{nullptr, nullptr, dots<Elements<F16>>}, panel<F16>, nullptr, nullptr};
constexpr WeightKernels avx2_bf16{{prepared_pairs, prepare_pairs, dots<Pairs>}, panel_bf16, nullptr, nullptr};

}  // namespace fs::cpu

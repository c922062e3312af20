#include "cpu/avx2.h"
#include "cpu/vector_blocks.h"
#include "cpu/vector_dots.h"

namespace fs::cpu {
namespace {

/// Eight columns of nibbles are eight words masked: n · 16^j as an integer. Their activations are multiplied
/// by 16^-j, which is exact, instead of each nibble being shifted; j = 7, where the sign bit is, is shifted.
/// That n is 8 more than what it stands for is made good by the first summand, −8 times the sum of the
/// activations.
struct Int4 {
  static constexpr size_t elements = 128, bytes = 66, floats = 136, groups = 16;

  static void prepare(const float* x, size_t n, float* to) {
    float sums[width] = {};
    for (size_t i = 0; i < elements; ++i) {
      const float value = i < n ? x[i] : 0;
      const size_t j = i % 64 / 8;
      to[i] = j == 7 ? value : value / static_cast<float>(1U << 4 * j);
      sums[i % width] += value;
    }
    for (size_t lane = 0; lane < width; ++lane) to[elements + lane] = -8 * sums[lane];
  }
  static Floats first(const float* x) { return load(x + elements); }
  static __m256i words(const std::byte* block, size_t group) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2 + group / 8 * 32));
  }
  static Floats decode(const std::byte* block, size_t group) {
    const __m256i shifted =
        _mm256_srl_epi32(words(block, group), _mm_cvtsi32_si128(static_cast<int>(group % 8 * 4)));
    const __m256i n = _mm256_and_si256(shifted, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(n, _mm256_set1_epi32(8)));
  }
  static Floats factor(const std::byte* block, size_t group) {
    const __m256i all = words(block, group);
    if (group % 8 == 7) return _mm256_cvtepi32_ps(_mm256_srli_epi32(all, 28));
    return _mm256_cvtepi32_ps(_mm256_and_si256(all, _mm256_set1_epi32(15 << group % 8 * 4)));
  }
};

}  // namespace

constexpr WeightKernels avx2_q8_0{
    {{prepared_floats<Q8_0>, prepare<Q8_0>, dots<Blocks<Q8_0>>}, &f32_gemm<panel<Q8_0>>}, &avx2_int8_q8_0};
constexpr WeightKernels avx2_int4{
    {{prepared_floats<Int4>, prepare<Int4>, dots<Blocks<Int4>>}, &f32_gemm<panel<Int4>>}, &avx2_int8_int4};

}  // namespace fs::cpu

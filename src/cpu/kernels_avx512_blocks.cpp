#include "cpu/avx512.h"
#include "cpu/vector_blocks.h"
#include "cpu/vector_dots.h"

namespace fs::cpu {
namespace {

/// The 16 words of a block hold 8 nibbles each. Group j is their j-th nibbles, columns 8·j to 8·j + 7 and
/// 64 + 8·j to 64 + 8·j + 7: the words masked are n · 16^j as integers. Their activations are multiplied by
/// 16^-j, which is exact, instead of each nibble being shifted; j = 7, where the sign bit is, is shifted.
/// That n is 8 more than what it stands for is made good by the first summand, −8 times the sum of the
/// activations.
struct Int4 {
  static constexpr size_t elements = 128, bytes = 66, floats = 144, groups = 8;

  static void prepare(const float* x, size_t n, float* to) {
    float sums[width] = {};
    for (size_t i = 0; i < elements; ++i) {
      const float value = i < n ? x[i] : 0;
      const size_t j = i % 64 / 8;
      to[width * j + i / 64 * 8 + i % 8] = j == 7 ? value : value / static_cast<float>(1U << 4 * j);
      sums[i % width] += value;
    }
    for (size_t lane = 0; lane < width; ++lane) to[elements + lane] = -8 * sums[lane];
  }
  static Floats first(const float* x) { return load(x + elements); }
  static Floats factor(const std::byte* block, size_t group) {
    const __m512i words = _mm512_loadu_si512(block + 2);
    if (group == 7) return _mm512_cvtepi32_ps(_mm512_srli_epi32(words, 28));
    return _mm512_cvtepi32_ps(_mm512_and_si512(words, _mm512_set1_epi32(15 << group * 4)));
  }
  /// The integers of the columns from 16·group on: two nibbles of eight words.
  static Floats decode(const std::byte* block, size_t group) {
    const __m512i words = _mm512_broadcast_i64x4(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2 + group / 4 * 32)));
    const int low = static_cast<int>(group % 4 * 8), high = low + 4;
    const __m512i shift = _mm512_setr_epi32(low, low, low, low, low, low, low, low, high, high, high, high,
                                            high, high, high, high);
    const __m512i n = _mm512_and_si512(_mm512_srlv_epi32(words, shift), _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(n, _mm512_set1_epi32(8)));
  }
};

}  // namespace

constexpr WeightKernels avx512_q8_0{
    {prepared_floats<Q8_0>, prepare<Q8_0>, dots<Blocks<Q8_0>>}, panel<Q8_0>, &avx512_int8_q8_0, nullptr};
constexpr WeightKernels avx512_int4{
    {prepared_floats<Int4>, prepare<Int4>, dots<Blocks<Int4>>}, panel<Int4>, &avx512_int8_int4, nullptr};

}  // namespace fs::cpu

#include <cstdint>

#include "cpu/avx2.h"

namespace fs::cpu {
namespace {

// The block formats (model/dtype.h says how they are stored). A block is summed without its scale, which then
// multiplies the sum: exact products of small integers and fp32 activations, an fp32 rounding each, as with
// stored floats. Activations are prepared once for all rows: blocks of `floats`, zeros behind the last
// column.

struct Q8_0 {
  static constexpr size_t elements = 32, bytes = 34, floats = 32, groups = 4;

  static void prepare(const float* x, size_t n, float* to) {
    for (size_t i = 0; i < elements; ++i) to[i] = i < n ? x[i] : 0;
  }
  /// What the sum over a block starts with.
  static __m256 first(const float*) { return _mm256_setzero_ps(); }
  /// The integers of the eight columns from 8·group on.
  static __m256 decode(const std::byte* block, size_t group) {
    const auto* const digits = reinterpret_cast<const __m128i*>(block + 2 + 8 * group);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(digits)));
  }
  /// The same for a product with prepared activations.
  static __m256 factor(const std::byte* block, size_t group) { return decode(block, group); }
};

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
  static __m256 first(const float* x) { return load(x + elements); }
  static __m256i words(const std::byte* block, size_t group) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2 + group / 8 * 32));
  }
  static __m256 decode(const std::byte* block, size_t group) {
    const __m256i shifted =
        _mm256_srl_epi32(words(block, group), _mm_cvtsi32_si128(static_cast<int>(group % 8 * 4)));
    const __m256i n = _mm256_and_si256(shifted, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(n, _mm256_set1_epi32(8)));
  }
  static __m256 factor(const std::byte* block, size_t group) {
    const __m256i all = words(block, group);
    if (group % 8 == 7) return _mm256_cvtepi32_ps(_mm256_srli_epi32(all, 28));
    return _mm256_cvtepi32_ps(_mm256_and_si256(all, _mm256_set1_epi32(15 << group % 8 * 4)));
  }
};

template <class Format>
size_t prepared_floats(size_t cols) {
  return (cols + Format::elements - 1) / Format::elements * Format::floats;
}

template <class Format>
void prepare(const float* x, size_t cols, float* prepared) {
  for (size_t k = 0; k < cols; k += Format::elements, prepared += Format::floats) {
    Format::prepare(x + k, cols - k < Format::elements ? cols - k : Format::elements, prepared);
  }
}

/// What dot_rows() walks with. A row's sum is the same for every R.
template <class Format>
struct Blocks {
  template <int M>
  static constexpr size_t rows_at_once = M == 1   ? 4
                                         : M <= 3 ? 2
                                                  : 1;

  template <int R, int M>
  static void dot_tile(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride,
                       float* out, size_t out_apart, size_t out_stride) {
    const size_t blocks = (cols + Format::elements - 1) / Format::elements;
    __m256 total[R][M];
    FS_UNROLL for (auto& row : total) { FS_UNROLL for (auto& one : row) one = _mm256_setzero_ps(); }
    for (size_t b = 0; b < blocks; ++b, w += Format::bytes, x += Format::floats) {
      __m256 sum[R][M];
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        const __m256 first = Format::first(x + m * x_stride);
        FS_UNROLL for (size_t r = 0; r < R; ++r) sum[r][m] = first;
      }
      FS_UNROLL for (size_t group = 0; group < Format::groups; ++group) {
        __m256 right[M];
        FS_UNROLL for (size_t m = 0; m < M; ++m) right[m] = load(x + m * x_stride + group * width);
        FS_UNROLL for (size_t r = 0; r < R; ++r) {
          const __m256 weights = Format::factor(w + r * apart, group);
          FS_UNROLL for (size_t m = 0; m < M; ++m) sum[r][m] = _mm256_fmadd_ps(weights, right[m], sum[r][m]);
        }
      }
      FS_UNROLL for (size_t r = 0; r < R; ++r) {
        const __m256 scale = _mm256_set1_ps(scale_of(w + r * apart));
        FS_UNROLL for (size_t m = 0; m < M; ++m) total[r][m] = _mm256_fmadd_ps(scale, sum[r][m], total[r][m]);
      }
    }
    for (size_t r = 0; r < R; ++r) {
      for (size_t m = 0; m < M; ++m) out[m * out_stride + r * out_apart] = sum_of(total[r][m]);
    }
  }
};

template <class Format>
void panel(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t count, float* out) {
  w += first_col / Format::elements * Format::bytes;
  for (size_t k = 0; k < count; k += width) {
    const std::byte* const blocks = w + k / Format::elements * Format::bytes;
    const size_t group = k % Format::elements / width, n = count - k < width ? count - k : width;
    for (size_t half = 0; half < panel_width; half += width) {
      __m256 v[width];
      for (size_t i = 0; i < width; ++i) {
        const std::byte* const block = blocks + (half + i) * row_bytes;
        v[i] = half + i >= rows
                   ? _mm256_setzero_ps()
                   : _mm256_mul_ps(_mm256_set1_ps(scale_of(block)), Format::decode(block, group));
      }
      transpose(v);
      for (size_t i = 0; i < n; ++i) _mm256_storeu_ps(out + (k + i) * panel_width + half, v[i]);
    }
  }
}

}  // namespace

constexpr WeightKernels avx2_q8_0{
    {prepared_floats<Q8_0>, prepare<Q8_0>, dots<Blocks<Q8_0>>}, panel<Q8_0>, &avx2_int8_q8_0};
constexpr WeightKernels avx2_int4{
    {prepared_floats<Int4>, prepare<Int4>, dots<Blocks<Int4>>}, panel<Int4>, &avx2_int8_int4};

}  // namespace fs::cpu

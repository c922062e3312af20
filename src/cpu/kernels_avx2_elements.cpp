#include "cpu/avx2.h"

namespace fs::cpu {
namespace {

template <class W>
__m256 decode_part(const std::byte* p, size_t n) {
  alignas(32) std::byte part[width * W::bytes] = {};
  __builtin_memcpy(part, p, n * W::bytes);
  return W::decode(part);
}

/// R rows of weights, `apart` bytes from each other, against M tokens, with a sum for each pair: enough
/// independent chains to keep up with memory, few enough for 16 registers. Every `flush` columns they are
/// added to a total, which keeps the rounding errors of long rows down. A row's sum is the same for every R
/// and M.
template <class W, int R, int M>
void dot(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride, float* out,
         size_t out_apart, size_t out_stride) {
  constexpr size_t flush = 512;
  __m256 total[R][M];
  for (auto& row : total) {
    for (auto& token : row) token = _mm256_setzero_ps();
  }
  for (size_t first = 0; first < cols; first += flush) {
    const size_t end = cols - first < flush ? cols : first + flush;
    __m256 sum[R][M];
    FS_UNROLL for (auto& row : sum) { FS_UNROLL for (auto& token : row) token = _mm256_setzero_ps(); }
    size_t k = first;
    for (; k + width <= end; k += width) {
      __m256 right[M];
      FS_UNROLL for (size_t m = 0; m < M; ++m) right[m] = load(x + m * x_stride + k);
      FS_UNROLL for (size_t r = 0; r < R; ++r) {
        const __m256 weights = W::decode(w + r * apart + k * W::bytes);
        FS_UNROLL for (size_t m = 0; m < M; ++m) sum[r][m] = _mm256_fmadd_ps(weights, right[m], sum[r][m]);
      }
    }
    FS_UNROLL for (size_t r = 0; r < R; ++r) {
      FS_UNROLL for (size_t m = 0; m < M; ++m) total[r][m] = _mm256_add_ps(total[r][m], sum[r][m]);
    }
    if (k < end) {
      const size_t n = end - k;
      for (size_t r = 0; r < R; ++r) {
        const __m256 weights = decode_part<W>(w + r * apart + k * W::bytes, n);
        for (size_t m = 0; m < M; ++m) {
          total[r][m] = _mm256_fmadd_ps(weights, load_part(x + m * x_stride + k, n), total[r][m]);
        }
      }
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t m = 0; m < M; ++m) out[m * out_stride + r * out_apart] = sum_of(total[r][m]);
  }
}

template <class W>
void panel(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t count, float* out) {
  for (size_t k = 0; k < count; k += width) {
    const size_t n = count - k < width ? count - k : width;
    for (size_t half = 0; half < panel_width; half += width) {
      __m256 v[width];
      for (size_t i = 0; i < width; ++i) {
        const std::byte* const from = w + (half + i) * row_bytes + (first_col + k) * W::bytes;
        v[i] = half + i >= rows ? _mm256_setzero_ps()
               : n == width     ? W::decode(from)
                                : decode_part<W>(from, n);
      }
      transpose(v);
      for (size_t i = 0; i < n; ++i) _mm256_storeu_ps(out + (k + i) * panel_width + half, v[i]);
    }
  }
}

/// Of bf16, whole panels are turned two columns at a time: a pair is as wide as a float, and its halves are
/// the two columns once they stand above 16 zero bits.
void panel_bf16(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t count,
                float* out) {
  const __m256 upper = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xFFFF0000)));
  const size_t whole = rows == panel_width ? count / (2 * width) * (2 * width) : 0;
  for (size_t k = 0; k < whole; k += 2 * width) {
    for (size_t half = 0; half < panel_width; half += width) {
      const std::byte* const from = w + half * row_bytes + (first_col + k) * Bf16::bytes;
      __m256 v[width];
      for (size_t i = 0; i < width; ++i) v[i] = F32::decode(from + i * row_bytes);
      transpose(v);
      float* const to = out + k * panel_width + half;
      for (size_t i = 0; i < width; ++i) {
        const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v[i]), 16));
        _mm256_storeu_ps(to + 2 * i * panel_width, even);
        _mm256_storeu_ps(to + (2 * i + 1) * panel_width, _mm256_and_ps(v[i], upper));
      }
    }
  }
  panel<Bf16>(w, row_bytes, rows, first_col + whole, count - whole, out + whole * panel_width);
}

/// What dot_rows() walks with.
template <class W>
struct Elements {
  template <int M>
  static constexpr size_t rows_at_once = M <= 3 ? 4 : 2;
  template <int R, int M>
  static void dot_tile(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride,
                       float* out, size_t out_apart, size_t out_stride) {
    dot<W, R, M>(w, apart, cols, x, x_stride, out, out_apart, out_stride);
  }
};

}  // namespace

constexpr WeightKernels avx2_f32{{nullptr, nullptr, dots<Elements<F32>>}, panel<F32>, nullptr};
constexpr WeightKernels avx2_f16{{nullptr, nullptr, dots<Elements<F16>>}, panel<F16>, nullptr};
constexpr WeightKernels avx2_bf16{{nullptr, nullptr, dots<Elements<Bf16>>}, panel_bf16, nullptr};

}  // namespace fs::cpu

#include "cpu/avx2_int8.h"

namespace fs::cpu {
namespace {

/// Eight sums of four products each. The first factor of maddubs has no sign: w's goes over to x. w may be
/// −128, x may not, so that no pair of products leaves 16 bits.
__m256i products(__m256i w_magnitude, __m256i w, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(w_magnitude, _mm256_sign_epi8(x, w));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

struct Q8_0 {
  static constexpr size_t elements = 32, bytes = 34;

  // A few tokens: a block's digits, and behind all digits the blocks' d.
  static constexpr size_t digit_floats = int8_block / sizeof(float);
  static size_t prepared_floats(size_t cols) { return blocks_of(cols) * (digit_floats + 1); }
  static void prepare(const float* x, size_t cols, float* prepared) {
    float* const d = prepared + blocks_of(cols) * digit_floats;
    for (size_t b = 0; b < blocks_of(cols); ++b) {
      const size_t at = b * int8_block;
      d[b] = quantize(x + at, cols - at < int8_block ? cols - at : int8_block,
                      reinterpret_cast<Digit*>(prepared + b * digit_floats));
    }
  }

  template <int R, int M>
  static void dot_tile(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride,
                       float* out, size_t out_apart, size_t out_stride) {
    const size_t blocks = blocks_of(cols);
    const float* const d = x + blocks * digit_floats;
    __m256 total[R][M];
    FS_UNROLL for (auto& row : total) { FS_UNROLL for (auto& one : row) one = _mm256_setzero_ps(); }
    for (size_t b = 0; b < blocks; ++b, w += bytes, x += digit_floats) {
      FS_UNROLL for (size_t r = 0; r < R; ++r) {
        const std::byte* const block = w + r * apart;
        const __m256i digits = load_bytes(block + 2), magnitude = _mm256_abs_epi8(digits);
        const float scale = scale_of(block);
        FS_UNROLL for (size_t m = 0; m < M; ++m) {
          const __m256i sum = products(magnitude, digits, load_bytes(x + m * x_stride));
          total[r][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(scale * d[m * x_stride + b]),
                                        total[r][m]);
        }
      }
    }
    for (size_t r = 0; r < R; ++r) {
      for (size_t m = 0; m < M; ++m) out[m * out_stride + r * out_apart] = sum_of(total[r][m]);
    }
  }

  // Many tokens: digits widened to 16 bits, two neighbouring columns side by side, so that one instruction
  // multiplies and adds the pairs of eight rows.
  static constexpr size_t tile_rows = 6, steps = int8_block / 2;
  static size_t tile_bytes(size_t cols) { return blocks_of(cols) * (steps + 1) * tile_rows * 4; }

  /// A block of a tile: [steps][tile_rows] pairs, then [tile_rows] d.
  static void pack(const float* x, size_t x_stride, size_t rows, size_t cols, std::byte* tile) {
    for (size_t k = 0; k < cols; k += int8_block, tile += (steps + 1) * tile_rows * 4) {
      for (size_t m = 0; m < tile_rows; ++m) {
        Digit q[int8_block] = {};
        const size_t n = cols - k < int8_block ? cols - k : int8_block;
        const float d = m < rows ? quantize(x + m * x_stride + k, n, q) : 0;
        for (size_t s = 0; s < steps; ++s) {
          const short pair[2] = {q[2 * s], q[2 * s + 1]};
          __builtin_memcpy(tile + (s * tile_rows + m) * 4, pair, sizeof pair);
        }
        store_float(d, tile + (steps * tile_rows + m) * 4);
      }
    }
  }

  /// A block of a panel: [steps][panel_width] pairs, then [panel_width] d.
  static void panel(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t cols,
                    std::byte* panel) {
    w += first_col / elements * bytes;
    for (size_t b = 0; b < blocks_of(cols); ++b, w += bytes, panel += (steps + 1) * panel_width * 4) {
      for (size_t half = 0; half < panel_width; half += width) {
        for (size_t part = 0; part < 2; ++part) {  // 16 columns, eight pairs
          __m256 v[width];
          for (size_t i = 0; i < width; ++i) {
            const auto* const digits =
                reinterpret_cast<const __m128i*>(w + (half + i) * row_bytes + 2 + part * 16);
            v[i] = half + i < rows ? _mm256_castsi256_ps(_mm256_cvtepi8_epi16(_mm_loadu_si128(digits)))
                                   : _mm256_setzero_ps();
          }
          transpose(v);
          for (size_t i = 0; i < width; ++i) {
            _mm256_storeu_ps(reinterpret_cast<float*>(panel + ((part * width + i) * panel_width + half) * 4),
                             v[i]);
          }
        }
      }
      for (size_t r = 0; r < panel_width; ++r) {
        store_float(r < rows ? scale_of(w + r * row_bytes) : 0, panel + (steps * panel_width + r) * 4);
      }
    }
  }

  static void gemm_tile(const std::byte* a, const std::byte* panel, size_t cols, float* c, size_t ldc,
                        bool accumulate) {
    for (size_t b = 0; b < blocks_of(cols); ++b) {
      __m256i sum[tile_rows][2];
      FS_UNROLL for (auto& row : sum) row[0] = row[1] = _mm256_setzero_si256();
      for (size_t s = 0; s < steps; ++s, a += tile_rows * 4, panel += panel_width * 4) {
        const __m256i w0 = load_bytes(panel), w1 = load_bytes(panel + 32);
        FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
          const __m256i x = _mm256_castps_si256(broadcast(reinterpret_cast<const float*>(a) + m));
          sum[m][0] = _mm256_add_epi32(sum[m][0], _mm256_madd_epi16(w0, x));
          sum[m][1] = _mm256_add_epi32(sum[m][1], _mm256_madd_epi16(w1, x));
        }
      }
      const auto* const w_scales = reinterpret_cast<const float*>(panel);
      const auto* const x_scales = reinterpret_cast<const float*>(a);
      const __m256 d0 = load(w_scales), d1 = load(w_scales + width);
      FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
        float* const to = c + m * ldc;
        const __m256 d = broadcast(x_scales + m);
        __m256 r0 = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[m][0]), _mm256_mul_ps(d0, d));
        __m256 r1 = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[m][1]), _mm256_mul_ps(d1, d));
        if (accumulate || b > 0) {
          r0 = _mm256_add_ps(load(to), r0);
          r1 = _mm256_add_ps(load(to + width), r1);
        }
        _mm256_storeu_ps(to, r0);
        _mm256_storeu_ps(to + width, r1);
      }
      a += tile_rows * 4;
      panel += panel_width * 4;
    }
  }
};

}  // namespace

constexpr Products avx2_int8_q8_0 = int8_products<Q8_0>;

}  // namespace fs::cpu

#include "cpu/avx2_int8.h"

namespace fs::cpu {
namespace {

/// Nibbles n = w + 8 have no sign, as maddubs wants it. Σ w·x = Σ n·x − 8·Σ x.
struct Int4 {
  static constexpr size_t elements = 128, bytes = 66;
  static constexpr size_t in_group = elements / int8_block;  // activation blocks of a group of weights

  static __m256i low_nibbles(__m256i words) { return _mm256_and_si256(words, _mm256_set1_epi8(15)); }
  static __m256i high_nibbles(__m256i words) { return low_nibbles(_mm256_srli_epi16(words, 4)); }

  // A few tokens. Of 64 columns, byte b of the word i has column 16·b + i in its lower half and 16·b + 8 + i
  // in its upper one: a pair of bytes is in one block of activations. A group: 4·32 digits so arranged, then
  // four d, then −Σ d·Σ q, an eighth of what the eights of the nibbles have added.
  static constexpr size_t group_floats = 40;
  static size_t prepared_floats(size_t cols) { return (cols + elements - 1) / elements * group_floats; }
  static void prepare(const float* x, size_t cols, float* prepared) {
    for (size_t k = 0; k < cols; k += elements, prepared += group_floats) {
      Digit q[elements] = {};
      auto* const digits = reinterpret_cast<Digit*>(prepared);
      float* const d = prepared + elements / sizeof(float);
      float eights = 0;
      for (size_t b = 0; b < in_group; ++b) {
        const size_t at = k + b * int8_block;
        const size_t n = at >= cols ? 0 : cols - at < int8_block ? cols - at : int8_block;
        d[b] = n > 0 ? quantize(x + at, n, q + b * int8_block) : 0;
        eights -= d[b] * static_cast<float>(sum_of_digits(q + b * int8_block));
      }
      d[in_group] = eights;
      for (size_t half = 0; half < 2; ++half) {
        for (size_t i = 0; i < 8; ++i) {
          for (size_t b = 0; b < 4; ++b) {
            digits[64 * half + 4 * i + b] = q[64 * half + 16 * b + i];
            digits[64 * half + 32 + 4 * i + b] = q[64 * half + 16 * b + 8 + i];
          }
        }
      }
    }
  }

  template <int R, int M>
  static void dot_tile(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride,
                       float* out, size_t out_apart, size_t out_stride) {
    const __m256i even = _mm256_set1_epi32(1);
    __m256 total[R][M];
    FS_UNROLL for (auto& row : total) { FS_UNROLL for (auto& one : row) one = _mm256_setzero_ps(); }
    for (size_t k = 0; k < cols; k += elements, w += bytes, x += group_floats) {
      FS_UNROLL for (size_t r = 0; r < R; ++r) {
        const std::byte* const block = w + r * apart;
        __m256 sum[M];
        FS_UNROLL for (size_t m = 0; m < M; ++m) sum[m] = broadcast(x + m * x_stride + 36);
        FS_UNROLL for (size_t half = 0; half < 2; ++half) {
          const __m256i words = load_bytes(block + 2 + 32 * half);
          const __m256i low = low_nibbles(words), high = high_nibbles(words);
          FS_UNROLL for (size_t m = 0; m < M; ++m) {
            const float* const digits = x + m * x_stride + 16 * half;
            const float* const d = x + m * x_stride + 32 + 2 * half;
            const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, load_bytes(digits)),
                                                   _mm256_maddubs_epi16(high, load_bytes(digits + 8)));
            sum[m] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, even)), broadcast(d), sum[m]);
            sum[m] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(pairs, 16)), broadcast(d + 1), sum[m]);
          }
        }
        const __m256 scale = _mm256_set1_ps(scale_of(block));
        FS_UNROLL for (size_t m = 0; m < M; ++m) total[r][m] = _mm256_fmadd_ps(scale, sum[m], total[r][m]);
      }
    }
    for (size_t r = 0; r < R; ++r) {
      for (size_t m = 0; m < M; ++m) out[m * out_stride + r * out_apart] = sum_of(total[r][m]);
    }
  }

  // Many tokens: four columns of a block side by side, (i, 16 + i, 8 + i, 24 + i). Sums of a block stay in 16
  // bits: a lane has 16 of the columns, whose positive q sum to P and negative ones to −N, P + N ≤ 2032. It
  // starts from −4 times the sum of all q, which is at most −4·(P − N) + 8128, and n ≤ 15 adds 15·P: never
  // more than 11·P + 4·N + 8128 ≤ 30480, and never less than −30480.
  static constexpr size_t tile_rows = 6, steps = int8_block / 4;
  static size_t groups_of(size_t cols) { return (cols + elements - 1) / elements; }
  static size_t tile_bytes(size_t cols) { return groups_of(cols) * in_group * (steps + 2) * tile_rows * 4; }

  /// A block of a tile: [steps][tile_rows] of four digits, then [tile_rows] what sums start from, twice in 16
  /// bits, then [tile_rows] d.
  static void pack(const float* x, size_t x_stride, size_t rows, size_t cols, std::byte* tile) {
    for (size_t k = 0; k < groups_of(cols) * elements; k += int8_block, tile += (steps + 2) * tile_rows * 4) {
      for (size_t m = 0; m < tile_rows; ++m) {
        Digit q[int8_block] = {};
        const size_t n = k >= cols ? 0 : cols - k < int8_block ? cols - k : int8_block;
        const float d = m < rows && n > 0 ? quantize(x + m * x_stride + k, n, q) : 0;
        for (size_t s = 0; s < steps; ++s) {
          const Digit four[4] = {q[s], q[16 + s], q[8 + s], q[24 + s]};
          __builtin_memcpy(tile + (s * tile_rows + m) * 4, four, sizeof four);
        }
        const auto start = static_cast<short>(-4 * sum_of_digits(q));
        const short starts[2] = {start, start};
        __builtin_memcpy(tile + (steps * tile_rows + m) * 4, starts, sizeof starts);
        store_float(d, tile + ((steps + 1) * tile_rows + m) * 4);
      }
    }
  }

  /// A group of a panel: four blocks of [steps][panel_width] of four nibbles, then [panel_width] d.
  static void panel(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t cols,
                    std::byte* panel) {
    const __m256i lower = _mm256_set1_epi32(0xFFFF);
    w += first_col / elements * bytes;
    for (size_t g = 0; g < groups_of(cols); ++g, w += bytes) {
      for (size_t b = 0; b < in_group; b += 2) {
        for (size_t half = 0; half < panel_width; half += width) {
          __m256 first[width], second[width];
          for (size_t i = 0; i < width; ++i) {
            first[i] = second[i] = _mm256_setzero_ps();
            if (half + i >= rows) continue;
            const __m256i words = load_bytes(w + (half + i) * row_bytes + 2 + b * 16);
            const __m256i low = low_nibbles(words), high = high_nibbles(words);
            first[i] = _mm256_castsi256_ps(
                _mm256_or_si256(_mm256_and_si256(low, lower), _mm256_slli_epi32(high, 16)));
            second[i] = _mm256_castsi256_ps(
                _mm256_or_si256(_mm256_srli_epi32(low, 16), _mm256_andnot_si256(lower, high)));
          }
          transpose(first);
          transpose(second);
          for (size_t s = 0; s < steps; ++s) {
            auto* const to = reinterpret_cast<float*>(panel) + s * panel_width + half;
            _mm256_storeu_ps(to, first[s]);
            _mm256_storeu_ps(to + steps * panel_width, second[s]);
          }
        }
        panel += 2 * steps * panel_width * 4;
      }
      for (size_t r = 0; r < panel_width; ++r, panel += 4) {
        store_float(r < rows ? scale_of(w + r * row_bytes) : 0, panel);
      }
    }
  }

  static void gemm_tile(const std::byte* a, const std::byte* panel, size_t cols, float* c, size_t ldc,
                        bool accumulate) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (size_t g = 0; g < groups_of(cols); ++g) {
      const auto* const w_scales = reinterpret_cast<const float*>(panel) + in_group * steps * panel_width;
      for (size_t b = 0; b < in_group; ++b) {
        const auto* const starts = reinterpret_cast<const float*>(a) + steps * tile_rows;
        __m256i sum[tile_rows][2];
        FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
          sum[m][0] = sum[m][1] = _mm256_castps_si256(broadcast(starts + m));
        }
        for (size_t s = 0; s < steps; ++s, a += tile_rows * 4, panel += panel_width * 4) {
          const __m256i w0 = load_bytes(panel), w1 = load_bytes(panel + 32);
          FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
            const __m256i x = _mm256_castps_si256(broadcast(reinterpret_cast<const float*>(a) + m));
            sum[m][0] = _mm256_add_epi16(sum[m][0], _mm256_maddubs_epi16(w0, x));
            sum[m][1] = _mm256_add_epi16(sum[m][1], _mm256_maddubs_epi16(w1, x));
          }
        }
        const __m256 d0 = load(w_scales), d1 = load(w_scales + width);
        FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
          float* const to = c + m * ldc;
          const __m256 d = broadcast(starts + tile_rows + m);
          __m256 r0 =
              _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(sum[m][0], ones)), _mm256_mul_ps(d0, d));
          __m256 r1 =
              _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(sum[m][1], ones)), _mm256_mul_ps(d1, d));
          if (accumulate || g + b > 0) {
            r0 = _mm256_add_ps(load(to), r0);
            r1 = _mm256_add_ps(load(to + width), r1);
          }
          _mm256_storeu_ps(to, r0);
          _mm256_storeu_ps(to + width, r1);
        }
        a += 2 * tile_rows * 4;
      }
      panel += panel_width * 4;
    }
  }
};

}  // namespace

constexpr Products avx2_int8_int4 = int8_products<Int4>;

}  // namespace fs::cpu

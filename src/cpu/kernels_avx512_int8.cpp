#include "cpu/activations.h"
#include "cpu/avx512.h"

namespace fs::cpu {
namespace {

// Products of int8 activations with many tokens: one instruction multiplies four neighbouring columns of
// sixteen rows and adds the products as integers. Its weights have no sign: u = q + offset. Σ q·x = Σ u·x −
// offset · Σ x, so the sums of a block start from −offset · Σ x.

constexpr size_t tile_rows = 12;  // with as many sums of blocks as of rows
constexpr size_t steps = int8_block / 4, lane_bytes = 4;

/// Blocks of activations, those that fill up a block of weights included.
template <class Format>
size_t blocks_of(size_t cols) {
  return (cols + Format::elements - 1) / Format::elements * (Format::elements / int8_block);
}
template <class Format>
size_t tile_bytes(size_t cols) {
  return blocks_of<Format>(cols) * (steps + 2) * tile_rows * lane_bytes;
}
template <class Format>
size_t panel_bytes(size_t cols) {
  return blocks_of<Format>(cols) * (steps + 1) * panel_width * lane_bytes;
}

/// quantize_int8(), sixteen at a time; q is filled up with zeros to a whole block.
float quantize(const float* x, size_t n, signed char* q) {
  const auto mask = static_cast<__mmask32>((1ULL << n) - 1);
  const Floats low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x),
               high = n > width ? _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> width), x + width)
                                : zero();
  // Magnitudes as integers: infinity and NaN on top.
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  const int largest =
      _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                               _mm512_and_si512(_mm512_castps_si512(high), magnitude)));
  auto* const to = reinterpret_cast<__m256i*>(q);
  if (largest >= 0x7F800000) {
    _mm256_storeu_si256(to, _mm256_maskz_set1_epi8(mask, 1));
    return __builtin_nanf("");
  }
  float peak;
  __builtin_memcpy(&peak, &largest, sizeof peak);
  const bool small = peak < 0x1p-100F;
  const Floats inverse = all(small ? 0 : 127 / peak);
  const __m128i first = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(mul(low, inverse))),  // ties to even
      second = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(mul(high, inverse)));
  _mm256_storeu_si256(to, _mm256_set_m128i(second, first));
  return small ? 0 : peak / 127;
}

/// A block of a tile: [steps][tile_rows] of four digits, then [tile_rows] what sums start from, then
/// [tile_rows] d. Blocks behind the last column, which fill up a block of weights, are zero.
template <class Format>
void pack(const float* x, size_t x_stride, size_t rows, size_t cols, std::byte* tile) {
  for (size_t b = 0; b < blocks_of<Format>(cols); ++b, tile += (steps + 2) * tile_rows * lane_bytes) {
    const size_t k = b * int8_block;
    for (size_t m = 0; m < tile_rows; ++m) {
      alignas(32) signed char q[int8_block] = {};
      const size_t n = k >= cols ? 0 : cols - k < int8_block ? cols - k : int8_block;
      const float d = m < rows && n > 0 ? quantize(x + m * x_stride + k, n, q) : 0;
      int start = 0;
      for (const signed char one : q) start -= Format::offset * one;
      for (size_t s = 0; s < steps; ++s) {
        __builtin_memcpy(tile + (s * tile_rows + m) * lane_bytes, q + s * lane_bytes, lane_bytes);
      }
      __builtin_memcpy(tile + (steps * tile_rows + m) * lane_bytes, &start, sizeof start);
      __builtin_memcpy(tile + ((steps + 1) * tile_rows + m) * lane_bytes, &d, sizeof d);
    }
  }
}

/// A block of a panel: [steps][panel_width] of four u, then [panel_width] d. Two blocks are turned at once.
template <class Format>
void panel(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t cols,
           std::byte* panel) {
  w += first_col / Format::elements * Format::bytes;
  const size_t blocks = blocks_of<Format>(cols);
  for (size_t b = 0; b < blocks; b += 2) {
    const size_t here = blocks - b < 2 ? 1 : 2;
    Floats v[width];
    alignas(64) float scales[2][panel_width] = {};
    for (size_t r = 0; r < panel_width; ++r) {
      v[r] = r < rows ? _mm512_castsi512_ps(Format::two_blocks(w + r * row_bytes, b, here)) : zero();
      for (size_t i = 0; i < here && r < rows; ++i) {
        scales[i][r] = scale_of(w + r * row_bytes + (b + i) * int8_block / Format::elements * Format::bytes);
      }
    }
    transpose(v);
    for (size_t i = 0; i < here; ++i) {
      auto* const to = reinterpret_cast<float*>(panel);
      for (size_t s = 0; s < steps; ++s) store(to + s * panel_width, v[i * steps + s]);
      store(to + steps * panel_width, load(scales[i]));
      panel += (steps + 1) * panel_width * lane_bytes;
    }
  }
}

template <class Format>
void gemm(const std::byte* tiles, size_t n_tiles, const std::byte* panel, size_t cols, float* c, size_t ldc,
          bool accumulate) {
  const size_t blocks = blocks_of<Format>(cols);
  for (size_t i = 0; i < n_tiles; ++i, c += tile_rows * ldc) {
    Floats total[tile_rows];
    FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) total[m] = accumulate ? load(c + m * ldc) : zero();
    const auto* w = reinterpret_cast<const int*>(panel);
    for (size_t b = 0; b < blocks; ++b) {
      const auto* const starts = reinterpret_cast<const int*>(tiles) + steps * tile_rows;
      __m512i sum[tile_rows];
      FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) sum[m] = _mm512_set1_epi32(starts[m]);
      FS_UNROLL for (size_t s = 0; s < steps; ++s) {
        const __m512i right = _mm512_loadu_si512(w + s * panel_width);
        FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
          const __m512i left = _mm512_set1_epi32(reinterpret_cast<const int*>(tiles)[s * tile_rows + m]);
          sum[m] = _mm512_dpbusd_epi32(sum[m], right, left);
        }
      }
      const Floats d = _mm512_loadu_ps(w + steps * panel_width);
      const auto* const x_scales = reinterpret_cast<const float*>(starts + tile_rows);
      FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
        total[m] = fma(_mm512_cvtepi32_ps(sum[m]), mul(d, all(x_scales[m])), total[m]);
      }
      tiles += (steps + 2) * tile_rows * lane_bytes;
      w += (steps + 1) * panel_width;
    }
    FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) store(c + m * ldc, total[m]);
  }
}

struct Q8_0 {
  static constexpr size_t elements = 32, bytes = 34;
  static constexpr int offset = 128;
  /// u of the block b, and of the next one if `here` is 2: 64 columns.
  static __m512i two_blocks(const std::byte* row, size_t b, size_t here) {
    const std::byte* const block = row + b * bytes;
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2));
    const __m256i second = here == 2 ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + bytes + 2))
                                     : _mm256_setzero_si256();
    const __m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    return _mm512_xor_si512(q, _mm512_set1_epi8(-128));
  }
};

struct Int4 {
  static constexpr size_t elements = 128, bytes = 66;
  static constexpr int offset = 8;
  /// Eight words have 64 columns: the j-th nibbles of all are columns 8·j to 8·j + 7.
  static __m512i two_blocks(const std::byte* row, size_t b, size_t) {
    const std::byte* const words = row + b / 4 * bytes + 2 + b % 4 / 2 * 32;
    const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    alignas(64) unsigned char columns[64];
    for (int j = 0; j < 8; ++j) {
      const __m256i n = _mm256_and_si256(_mm256_srli_epi32(packed, 4 * j), _mm256_set1_epi32(15));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(columns + 8 * j), _mm256_cvtepi32_epi8(n));
    }
    return _mm512_load_si512(columns);
  }
};

template <class F>
constexpr RoundedKernels int8_kernels(const DotKernels& dots) {
  return {&dots, tile_rows, tile_bytes<F>, pack<F>, panel_bytes<F>, panel<F>, gemm<F>};
}

}  // namespace

constexpr RoundedKernels avx512_int8_q8_0 = int8_kernels<Q8_0>(avx2_int8_q8_0_dots);
constexpr RoundedKernels avx512_int8_int4 = int8_kernels<Int4>(avx2_int8_int4_dots);

}  // namespace fs::cpu

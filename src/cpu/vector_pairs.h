#pragma once
#include "cpu/vector_elements.h"

// Products with rows of bf16, in the words of whichever vector header was included first. Everything has
// internal linkage (kernels.h says why).
namespace fs::cpu {
namespace {

/// dot() for bf16, whose pairs are as wide as a float: a register of pairs is one of even columns and one
/// of odd ones, for two operations. x as prepare_pairs() brings it into that order.
template <int R, int M>
void dot_pairs(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride, float* out,
               size_t out_apart, size_t out_stride) {
  constexpr size_t flush = 64 * width, step = 2 * width;
  Floats total[R][M];
  for (auto& row : total) {
    for (auto& token : row) token = zero();
  }
  for (size_t first = 0; first < cols; first += flush) {
    const size_t end = cols - first < flush ? cols : first + flush;
    Floats even[R][M], odd[R][M];
    FS_UNROLL for (size_t r = 0; r < R; ++r) {
      FS_UNROLL for (size_t m = 0; m < M; ++m) even[r][m] = odd[r][m] = zero();
    }
    for (size_t k = first; k < end; k += step) {
      Floats pairs[R];
      FS_UNROLL for (size_t r = 0; r < R; ++r) {
        const std::byte* const from = w + r * apart + k * Bf16::bytes;
        pairs[r] = end - k >= step ? F32::decode(from) : load_pairs(from, end - k);
        // Several tokens take so long over a page that the prefetchers' stop at its end is felt.
        if (M > 1) _mm_prefetch(from + 4096, _MM_HINT_T1);
      }
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        const Floats x_even = load(x + m * x_stride + k), x_odd = load(x + m * x_stride + k + width);
        FS_UNROLL for (size_t r = 0; r < R; ++r) {
          even[r][m] = fma(lower_bf16(pairs[r]), x_even, even[r][m]);
          odd[r][m] = fma(upper_bf16(pairs[r]), x_odd, odd[r][m]);
        }
      }
    }
    FS_UNROLL for (size_t r = 0; r < R; ++r) {
      FS_UNROLL for (size_t m = 0; m < M; ++m) total[r][m] = add(total[r][m], add(even[r][m], odd[r][m]));
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t m = 0; m < M; ++m) out[m * out_stride + r * out_apart] = sum_of(total[r][m]);
  }
}

size_t prepared_pairs(size_t cols) { return (cols + 2 * width - 1) / (2 * width) * (2 * width); }
/// Of every 2·width columns the even ones, then the odd ones; zeros behind the last column.
void prepare_pairs(const float* x, size_t cols, float* prepared) {
  for (size_t k = 0; k < cols; k += 2 * width) {
    const size_t n = cols - k;
    const Floats low = n < width ? load_part(x + k, n) : load(x + k);
    const Floats high = n <= width      ? zero()
                        : n < 2 * width ? load_part(x + k + width, n - width)
                                        : load(x + k + width);
    store(prepared + k, every_other(low, high, 0));
    store(prepared + k + width, every_other(low, high, 1));
  }
}

/// Of bf16, whole panels are turned two columns at a time: a pair is as wide as a float, and its halves are
/// the two columns once they stand above 16 zero bits.
void panel_bf16(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t count,
                std::byte* out) {
  const size_t whole = rows == panel_width ? count / (2 * width) * (2 * width) : 0;
  for (size_t k = 0; k < whole; k += 2 * width) {
    for (size_t half = 0; half < panel_width; half += width) {
      const std::byte* const from = w + half * row_bytes + (first_col + k) * Bf16::bytes;
      Floats v[width];
      for (size_t i = 0; i < width; ++i) v[i] = F32::decode(from + i * row_bytes);
      transpose(v);
      float* const to = reinterpret_cast<float*>(out) + k * panel_width + half;
      for (size_t i = 0; i < width; ++i) {
        store(to + 2 * i * panel_width, lower_bf16(v[i]));
        store(to + (2 * i + 1) * panel_width, upper_bf16(v[i]));
      }
    }
  }
  panel<Bf16>(w, row_bytes, rows, first_col + whole, count - whole,
              out + whole * panel_width * sizeof(float));
}

/// What dot_rows() walks with.
struct Pairs {
  template <int R, int M>
  static void dot_tile(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride,
                       float* out, size_t out_apart, size_t out_stride) {
    dot_pairs<R, M>(w, apart, cols, x, x_stride, out, out_apart, out_stride);
  }
};
}  // namespace
}  // namespace fs::cpu

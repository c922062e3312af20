#pragma once

// How products of a few tokens walk over rows of weights, in the words of whichever vector header was
// included first (avx2.h, avx512.h). Everything has internal linkage (kernels.h says why).
namespace fs::cpu {
namespace {

/// Walks down R stretches of rows side by side: hardware prefetchers follow each stream only to the end of
/// its page, and with four streams they have four pages to work on. One thread of a Zen 3 reads 13.3 GB/s so,
/// where one stream in order gives 7.9, four neighbouring rows 6, and panels of 16 interleaved rows 8.5.
template <class W, int M>
void dot_rows(const std::byte* w, size_t row_bytes, size_t rows, size_t cols, const float* x, size_t x_stride,
              float* out, size_t out_stride) {
  // Two sums for every row and token, or a sum and a total.
  constexpr size_t R = 8 * M <= most_sums ? 4 : 4 * M <= most_sums ? 2 : 1;
  const size_t stretch = rows / R;
  for (size_t r = 0; r < stretch; ++r) {
    W::template dot_tile<R, M>(w + r * row_bytes, stretch * row_bytes, cols, x, x_stride, out + r, stretch,
                               out_stride);
  }
  for (size_t r = stretch * R; r < rows; ++r) {
    W::template dot_tile<1, M>(w + r * row_bytes, 0, cols, x, x_stride, out + r, 0, out_stride);
  }
}

template <class W>
void dots(const std::byte* w, size_t row_bytes, size_t rows, size_t cols, const float* x, size_t x_stride,
          size_t tokens, float* out, size_t out_stride) {
  while (tokens > 0) {
    const size_t m = tokens <= 6 ? tokens : tokens < 12 ? tokens / 2 : 6;
    const auto rows_of = m == 1   ? dot_rows<W, 1>
                         : m == 2 ? dot_rows<W, 2>
                         : m == 3 ? dot_rows<W, 3>
                         : m == 4 ? dot_rows<W, 4>
                         : m == 5 ? dot_rows<W, 5>
                                  : dot_rows<W, 6>;
    rows_of(w, row_bytes, rows, cols, x, x_stride, out, out_stride);
    x += m * x_stride;
    out += m * out_stride;
    tokens -= m;
  }
}

}  // namespace
}  // namespace fs::cpu

#pragma once

// Products with weights stored one by one (f32, f16, bf16), in the words of whichever vector header was
// included first (avx2.h, avx512.h). Everything has internal linkage (kernels.h says why).
namespace fs::cpu {
namespace {

/// R rows of weights, `apart` bytes from each other, against M tokens, with two sums for each pair: enough
/// independent chains to hide the latency of an FMA, few enough for the registers. Every `flush` columns they
/// are added to a total, which keeps the rounding errors of long rows down. A row's sum is the same for every
/// R and M.
template <class W, int R, int M>
void dot(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride, float* out,
         size_t out_apart, size_t out_stride) {
  constexpr size_t flush = 64 * width, U = 2;
  Floats total[R][M];
  for (auto& row : total) {
    for (auto& token : row) token = zero();
  }
  for (size_t first = 0; first < cols; first += flush) {
    const size_t end = cols - first < flush ? cols : first + flush;
    Floats sum[R][M][U];
    FS_UNROLL for (auto& row : sum) {
      FS_UNROLL for (auto& token : row) { FS_UNROLL for (auto& one : token) one = zero(); }
    }
    size_t k = first;
    for (; k + U * width <= end; k += U * width) {
      FS_UNROLL for (size_t u = 0; u < U; ++u) {
        const size_t at = k + u * width;
        Floats right[M];
        FS_UNROLL for (size_t m = 0; m < M; ++m) right[m] = load(x + m * x_stride + at);
        FS_UNROLL for (size_t r = 0; r < R; ++r) {
          const Floats weights = W::decode(w + r * apart + at * W::bytes);
          FS_UNROLL for (size_t m = 0; m < M; ++m) sum[r][m][u] = fma(weights, right[m], sum[r][m][u]);
        }
      }
    }
    FS_UNROLL for (size_t r = 0; r < R; ++r) {
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        FS_UNROLL for (size_t u = 1; u < U; ++u) sum[r][m][0] = add(sum[r][m][0], sum[r][m][u]);
        total[r][m] = add(total[r][m], sum[r][m][0]);
      }
    }
    for (; k < end; k += width) {
      const size_t n = end - k < width ? end - k : width;
      for (size_t r = 0; r < R; ++r) {
        const Floats weights = W::decode_part(w + r * apart + k * W::bytes, n);
        for (size_t m = 0; m < M; ++m) {
          total[r][m] = fma(weights, load_part(x + m * x_stride + k, n), total[r][m]);
        }
      }
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t m = 0; m < M; ++m) out[m * out_stride + r * out_apart] = sum_of(total[r][m]);
  }
}

template <class W>
void panel(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t count,
           std::byte* out) {
  for (size_t k = 0; k < count; k += width) {
    const size_t n = count - k < width ? count - k : width;
    for (size_t half = 0; half < panel_width; half += width) {
      Floats v[width];
      for (size_t i = 0; i < width; ++i) {
        const std::byte* const from = w + (half + i) * row_bytes + (first_col + k) * W::bytes;
        v[i] = half + i >= rows ? zero() : n == width ? W::decode(from) : W::decode_part(from, n);
      }
      transpose(v);
      for (size_t i = 0; i < n; ++i)
        store(reinterpret_cast<float*>(out) + (k + i) * panel_width + half, v[i]);
    }
  }
}

/// What dot_rows() walks with.
template <class W>
struct Elements {
  template <int R, int M>
  static void dot_tile(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride,
                       float* out, size_t out_apart, size_t out_stride) {
    dot<W, R, M>(w, apart, cols, x, x_stride, out, out_apart, out_stride);
  }
};

}  // namespace
}  // namespace fs::cpu

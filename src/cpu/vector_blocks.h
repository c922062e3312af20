#pragma once

// Products of fp32 activations with weights stored in blocks (model/dtype.h says how), in the words of
// whichever vector header was included first (avx2.h, avx512.h). A block is summed without its scale, which
// then multiplies the sum: exact products of small integers and fp32 activations, an fp32 rounding each, as
// with stored floats. Activations are prepared once for all rows: blocks of `floats`, zeros behind the last
// column. Everything has internal linkage (kernels.h says why).
namespace fs::cpu {
namespace {

struct Q8_0 {
  static constexpr size_t elements = 32, bytes = 34, floats = 32, groups = elements / width;

  static void prepare(const float* x, size_t n, float* to) {
    for (size_t i = 0; i < elements; ++i) to[i] = i < n ? x[i] : 0;
  }
  /// What the sum over a block starts with.
  static Floats first(const float*) { return zero(); }
  /// The integers of the columns from width·group on.
  static Floats decode(const std::byte* block, size_t group) { return from_int8(block + 2 + width * group); }
  /// Integers to be multiplied by the group's prepared activations.
  static Floats factor(const std::byte* block, size_t group) { return decode(block, group); }
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
  template <int R, int M>
  static void dot_tile(const std::byte* w, size_t apart, size_t cols, const float* x, size_t x_stride,
                       float* out, size_t out_apart, size_t out_stride) {
    const size_t blocks = (cols + Format::elements - 1) / Format::elements;
    Floats total[R][M];
    FS_UNROLL for (auto& row : total) { FS_UNROLL for (auto& one : row) one = zero(); }
    for (size_t b = 0; b < blocks; ++b, w += Format::bytes, x += Format::floats) {
      Floats sum[R][M];
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        const Floats first = Format::first(x + m * x_stride);
        FS_UNROLL for (size_t r = 0; r < R; ++r) sum[r][m] = first;
      }
      FS_UNROLL for (size_t group = 0; group < Format::groups; ++group) {
        Floats right[M];
        FS_UNROLL for (size_t m = 0; m < M; ++m) right[m] = load(x + m * x_stride + group * width);
        FS_UNROLL for (size_t r = 0; r < R; ++r) {
          const Floats weights = Format::factor(w + r * apart, group);
          FS_UNROLL for (size_t m = 0; m < M; ++m) sum[r][m] = fma(weights, right[m], sum[r][m]);
        }
      }
      FS_UNROLL for (size_t r = 0; r < R; ++r) {
        const Floats scale = all(scale_of(w + r * apart));
        FS_UNROLL for (size_t m = 0; m < M; ++m) total[r][m] = fma(scale, sum[r][m], total[r][m]);
      }
    }
    for (size_t r = 0; r < R; ++r) {
      for (size_t m = 0; m < M; ++m) out[m * out_stride + r * out_apart] = sum_of(total[r][m]);
    }
  }
};

template <class Format>
void panel(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t count,
           std::byte* out) {
  w += first_col / Format::elements * Format::bytes;
  for (size_t k = 0; k < count; k += width) {
    const std::byte* const blocks = w + k / Format::elements * Format::bytes;
    const size_t group = k % Format::elements / width, n = count - k < width ? count - k : width;
    for (size_t half = 0; half < panel_width; half += width) {
      Floats v[width];
      for (size_t i = 0; i < width; ++i) {
        const std::byte* const block = blocks + (half + i) * row_bytes;
        v[i] = half + i >= rows ? zero() : mul(all(scale_of(block)), Format::decode(block, group));
      }
      transpose(v);
      for (size_t i = 0; i < n; ++i)
        store(reinterpret_cast<float*>(out) + (k + i) * panel_width + half, v[i]);
    }
  }
}

}  // namespace
}  // namespace fs::cpu

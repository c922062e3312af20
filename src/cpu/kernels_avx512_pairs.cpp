#include "cpu/avx512.h"
#include "cpu/vector_rows.h"

namespace fs::cpu {
namespace {

// BF16 weights in panels: [pairs of columns][panel_width rows][2], zero behind the last column. A register of
// a panel is two columns of sixteen rows, which fp32 products take one after the other, and a bf16 product at
// once. Read from front to back a panel comes as fast from memory as one core can read; rows side by side,
// as they are stored, come two thirds as fast (one thread of a Zen 4: 21.1 and 15.2 tokens a second).

constexpr size_t pair_bytes = 4, line_bytes = panel_width * pair_bytes;
constexpr size_t prefetch_bytes = 2048;

size_t pairs_of(size_t cols) { return (cols + 1) / 2; }
size_t bytes(size_t cols) { return pairs_of(cols) * line_bytes; }

Floats line_at(const std::byte* panel) { return F32::decode(panel); }

void pack(const std::byte* w, size_t row_bytes, size_t rows, size_t cols, std::byte* panel) {
  for (size_t k = 0; k < cols; k += 2 * width) {
    const size_t left = cols - k;
    Floats v[width];
    for (size_t r = 0; r < width; ++r) {
      const std::byte* const from = w + r * row_bytes + k * Bf16::bytes;
      v[r] = r >= rows ? zero() : left >= 2 * width ? line_at(from) : load_pairs(from, left);
    }
    transpose(v);
    const size_t lines = left >= 2 * width ? width : pairs_of(left);
    for (size_t i = 0; i < lines; ++i, panel += line_bytes) store(reinterpret_cast<float*>(panel), v[i]);
  }
}

void row(const std::byte* panel, size_t r, size_t cols, float* out) {
  for (size_t k = 0; k < cols; ++k) {
    unsigned short half;
    __builtin_memcpy(&half, panel + k / 2 * line_bytes + r * pair_bytes + k % 2 * sizeof half, sizeof half);
    const unsigned bits = static_cast<unsigned>(half) << 16;
    __builtin_memcpy(out + k, &bits, sizeof bits);
  }
}

/// Columns of a panel as fp32, [cols][panel_width]; `first` is even.
void columns(const std::byte* panel, size_t, size_t, size_t first, size_t cols, std::byte* to) {
  auto* out = reinterpret_cast<float*>(to);
  panel += first / 2 * line_bytes;
  for (size_t k = 0; k < cols; k += 2, panel += line_bytes, out += 2 * panel_width) {
    const Floats pairs = line_at(panel);
    store(out, lower_bf16(pairs));
    if (k + 1 < cols) store(out + panel_width, upper_bf16(pairs));
  }
}

/// Activations as they are, an odd number of cache lines from each other: rows of 1024 floats one behind the
/// other would all lie in the same sets of a first-level cache, eight of them filling these.
size_t prepared_floats(size_t cols) { return ((cols + width - 1) / width | 1) * width; }
void prepare(const float* x, size_t cols, float* prepared) {
  __builtin_memcpy(prepared, x, cols * sizeof(float));
}

/// A panel against M tokens, with a sum of even columns and one of odd ones, added to a total every `flush`
/// columns (vector_gemm.h says why). A row's sum is the same for every M.
template <int M>
void tile(const std::byte* panel, size_t cols, const float* x, size_t x_stride, float* out,
          size_t out_stride) {
  constexpr size_t flush = 64;
  Floats total[M];
  FS_UNROLL for (auto& one : total) one = zero();
  StridedRows<M> tokens(x, x_stride);
  for (size_t first = 0; first < cols; first += flush) {
    const size_t here = cols - first < flush ? cols - first : flush;
    Floats even[M], odd[M];
    FS_UNROLL for (size_t m = 0; m < M; ++m) even[m] = odd[m] = zero();
    for (size_t k = 0; k + 1 < here; k += 2, panel += line_bytes, tokens.advance(2)) {
      tokens.renew();
      // As with integers (kernels_avx512_panels.cpp).
      if (M > 1) _mm_prefetch(panel + prefetch_bytes, _MM_HINT_T0);
      const Floats pairs = line_at(panel), lower = lower_bf16(pairs), upper = upper_bf16(pairs);
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        even[m] = fma(lower, all(tokens.row(m)[0]), even[m]);
        odd[m] = fma(upper, all(tokens.row(m)[1]), odd[m]);
      }
    }
    if (here % 2 == 1) {  // nothing lies behind the last column of x
      const Floats lower = lower_bf16(line_at(panel));
      FS_UNROLL for (size_t m = 0; m < M; ++m) even[m] = fma(lower, all(tokens.row(m)[0]), even[m]);
    }
    FS_UNROLL for (size_t m = 0; m < M; ++m) total[m] = add(total[m], add(even[m], odd[m]));
  }
  FS_UNROLL for (size_t m = 0; m < M; ++m) store(out + m * out_stride, total[m]);
}

template <int M>
void tiles(const std::byte* panel, size_t panel_bytes, size_t rows, size_t cols, const float* x,
           size_t x_stride, float* out, size_t out_stride) {
  for (size_t r = 0; r < rows; r += panel_width, panel += panel_bytes) {
    tile<M>(panel, cols, x, x_stride, out + r, out_stride);
  }
}

void dots(const std::byte* panels, size_t panel_bytes, size_t rows, size_t cols, const float* x,
          size_t x_stride, size_t tokens, float* out, size_t out_stride) {
  for (size_t m; tokens > 0; tokens -= m, x += m * x_stride, out += m * out_stride) {
    m = tokens <= 8 ? tokens : tokens < 16 ? tokens / 2 : 8;  // so many tokens' sums fill the registers
    const auto some = m == 1   ? tiles<1>
                      : m == 2 ? tiles<2>
                      : m == 3 ? tiles<3>
                      : m == 4 ? tiles<4>
                      : m == 5 ? tiles<5>
                      : m == 6 ? tiles<6>
                      : m == 7 ? tiles<7>
                               : tiles<8>;
    some(panels, panel_bytes, rows, cols, x, x_stride, out, out_stride);
  }
}

constexpr PanelKernels panels{bytes, pack, row};
constexpr Products exact{{prepared_floats, prepare, dots}, &f32_gemm<columns>};

}  // namespace

constexpr WeightKernels avx512_bf16{exact, nullptr, nullptr, &panels};
constexpr WeightKernels avx512bf16_bf16{exact, nullptr, &avx512bf16_products, &panels};

}  // namespace fs::cpu

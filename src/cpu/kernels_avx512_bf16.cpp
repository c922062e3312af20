#include "cpu/avx512.h"
#include "cpu/vector_rows.h"

namespace fs::cpu {
namespace {

// Products of bf16 activations with bf16 weights: one instruction multiplies two neighbouring columns of
// sixteen rows and adds the products in fp32.

constexpr size_t tile_rows = 24;
constexpr size_t pair_bytes = 4;

size_t pairs_of(size_t cols) { return (cols + 1) / 2; }
size_t tile_bytes(size_t cols) { return pairs_of(cols) * tile_rows * pair_bytes; }
size_t panel_bytes(size_t cols) { return pairs_of(cols) * panel_width * pair_bytes; }

/// A tile: [pairs][tile_rows] of two columns. x is rounded to bf16 already.
void pack(const float* x, size_t x_stride, size_t rows, size_t cols, std::byte* tile) {
  for (size_t k = 0; k < cols; k += 2 * width) {
    const size_t n = cols - k < 2 * width ? cols - k : 2 * width, first = n < width ? n : width;
    for (size_t m = 0; m < tile_rows; m += width) {
      Floats v[width];
      for (size_t i = 0; i < width; ++i) {
        v[i] = zero();
        if (m + i >= rows) continue;
        const float* const from = x + (m + i) * x_stride + k;
        const __m512bh pairs =
            _mm512_cvtne2ps_pbh(load_part(from + first, n - first), load_part(from, first));
        v[i] = reinterpret_cast<Floats>(pairs);
      }
      transpose(v);
      for (size_t i = 0; i < pairs_of(n); ++i) {
        auto* const to = reinterpret_cast<float*>(tile + (k / 2 + i) * tile_rows * pair_bytes) + m;
        store_part(to, v[i], tile_rows - m < width ? tile_rows - m : width);
      }
    }
  }
}

/// sum += right · the two columns at x, in one instruction; of the intrinsic the compiler makes two.
inline void add_products(Floats& sum, __m512bh right, const int* x) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(right), "m"(*x));
}

void gemm(const std::byte* tiles, size_t n_tiles, const std::byte* panel, size_t cols, float* c, size_t ldc,
          bool accumulate) {
  // The first tile would wait for every line of the panel: nothing has read it before.
  for (size_t i = 0; i < panel_bytes(cols); i += 64) _mm_prefetch(panel + i, _MM_HINT_T0);
  for (size_t i = 0; i < n_tiles; ++i, c += tile_rows * ldc) {
    Floats sum[tile_rows];
    FS_UNROLL for (auto& one : sum) one = zero();
    const std::byte* line = panel;
    for (size_t p = 0; p < pairs_of(cols);
         ++p, tiles += tile_rows * pair_bytes, line += panel_width * pair_bytes) {
      const auto right = reinterpret_cast<__m512bh>(_mm512_loadu_si512(line));
      FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
        add_products(sum[m], right, reinterpret_cast<const int*>(tiles) + m);
      }
    }
    FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
      float* const to = c + m * ldc;
      store(to, accumulate ? add(load(to), sum[m]) : sum[m]);
    }
  }
}

void round(const float* x, size_t n, std::uint16_t* out) {
  for (size_t i = 0; i < n; i += width) {
    const size_t here = n - i < width ? n - i : width;
    const __m256bh rounded = _mm512_cvtneps_pbh(load_part(x + i, here));
    _mm256_mask_storeu_epi16(out + i, first_lanes(here), reinterpret_cast<__m256i>(rounded));
  }
}

template <class Element>
void round_panel(const std::byte* panel, size_t k, std::uint16_t* out) {
  constexpr size_t row_bytes = panel_width * Element::bytes;
  const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (size_t i = 0; i < k; i += 2, panel += 2 * row_bytes, out += 2 * panel_width) {
    const __m512bh rows = _mm512_cvtne2ps_pbh(Element::decode(panel + row_bytes), Element::decode(panel));
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(pairs, reinterpret_cast<__m512i>(rows)));
  }
}

void gemm_rows(const std::uint16_t* a, size_t lda, size_t rows, const std::uint16_t* panel, size_t apart,
               size_t panels, size_t k, float* c, size_t ldc, bool accumulate) {
  for (; rows > 0; rows -= tile_rows, a += tile_rows * lda, c += tile_rows * ldc) {
    for (size_t p = 0; p < panels; ++p) {
      Floats sum[tile_rows];
      FS_UNROLL for (auto& one : sum) one = zero();
      StridedRows<tile_rows> left(reinterpret_cast<const float*>(a), lda / 2);
      const std::uint16_t* line = panel + p * apart;
      for (size_t i = 0; i < k; i += 2, line += 2 * panel_width, left.advance(1)) {
        left.renew();
        const auto right = reinterpret_cast<__m512bh>(_mm512_loadu_si512(line));
        FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
          add_products(sum[m], right, reinterpret_cast<const int*>(left.row(m)));
        }
      }
      FS_UNROLL for (size_t m = 0; m < tile_rows; ++m) {
        float* const to = c + m * ldc + p * panel_width;
        store(to, accumulate ? add(load(to), sum[m]) : sum[m]);
      }
    }
  }
}

constexpr GemmKernels products{tile_rows, tile_bytes, pack, panel_bytes, nullptr, gemm};

}  // namespace

constexpr Products avx512bf16_products{{}, &products};
constexpr RoundedAttention avx512bf16_attention{
    round, round_panel<F32>, round_panel<F16>, round_panel<Bf16>, tile_rows, gemm_rows};

}  // namespace fs::cpu

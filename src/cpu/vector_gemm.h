#pragma once
#include <cstdint>

#include "cpu/vector_rows.h"

// Matrix products with panels, and what the cache holds, in the words of whichever vector header was included
// first (avx2.h, avx512.h). Everything has internal linkage (kernels.h says why).
namespace fs::cpu {
namespace {

/// c[M][16·P] (+)= a · b for P panels [k][16] of `Element`, `apart` bytes from each other. `packed`: a is
/// [k][M], else row-major with row stride lda. A register sums no more than `flush` products before it is
/// added to c: sums of a thousand products in one fp32 chain would put four times the error into every layer.
template <class Element, int M, int P, bool packed>
void tile(const float* a, size_t lda, const std::byte* b, size_t apart, size_t k, float* c, size_t ldc,
          bool accumulate) {
  constexpr size_t flush = 64, N = panel_width / width;
  for (size_t first = 0; first < k; first += flush) {
    const size_t end = k - first < flush ? k : first + flush;
    Floats sum[M][P * N];
    FS_UNROLL for (auto& row : sum) { FS_UNROLL for (auto& one : row) one = zero(); }
    StridedRows<packed ? 1 : M> rows(a + (packed ? first * M : first), lda);
    for (size_t i = first; i < end; ++i, rows.advance(packed ? M : 1)) {
      rows.renew();
      Floats right[P * N];
      FS_UNROLL for (size_t n = 0; n < P * N; ++n) {
        right[n] = Element::decode(b + n / N * apart + (i * panel_width + n % N * width) * Element::bytes);
      }
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        const Floats left = all(*(packed ? rows.row(0) + m : rows.row(m)));
        FS_UNROLL for (size_t n = 0; n < P * N; ++n) sum[m][n] = fma(left, right[n], sum[m][n]);
      }
    }
    FS_UNROLL for (size_t m = 0; m < M; ++m) {
      FS_UNROLL for (size_t n = 0; n < P * N; ++n) {
        float* const to = c + m * ldc + n * width;
        store(to, accumulate || first > 0 ? add(load(to), sum[m][n]) : sum[m][n]);
      }
    }
  }
}

/// M rows against panels one behind the other. With few rows memory is what bounds: then several panels are
/// read side by side, for the prefetchers' sake (vector_dots.h), and for more sums than an FMA has latency.
template <class Element, int M>
void rows_of(const float* a, size_t lda, const std::byte* b, size_t bytes, size_t panels, size_t k, float* c,
             size_t ldc, bool accumulate) {
  constexpr size_t most = most_sums * width / panel_width / M, P = M >= 6      ? 1
                                                                   : most >= 4 ? 4
                                                                   : most >= 2 ? 2
                                                                               : 1;
  size_t p = 0;
  for (; p + P <= panels; p += P) {
    tile<Element, M, P, false>(a, lda, b + p * bytes, bytes, k, c + p * panel_width, ldc, accumulate);
  }
  for (; p < panels; ++p) {
    tile<Element, M, 1, false>(a, lda, b + p * bytes, bytes, k, c + p * panel_width, ldc, accumulate);
  }
}

template <class Element>
void gemm_rows(const float* a, size_t lda, size_t rows, const std::byte* b, size_t apart, size_t panels,
               size_t k, float* c, size_t ldc, bool accumulate) {
  constexpr int most = most_sums / (panel_width / width);
  for (; rows >= most; rows -= most, a += most * lda, c += most * ldc) {
    rows_of<Element, most>(a, lda, b, apart, panels, k, c, ldc, accumulate);
  }
  for (; rows >= 6; rows -= 6, a += 6 * lda, c += 6 * ldc) {
    rows_of<Element, 6>(a, lda, b, apart, panels, k, c, ldc, accumulate);
  }
  const auto rest = rows == 1   ? rows_of<Element, 1>
                    : rows == 2 ? rows_of<Element, 2>
                    : rows == 3 ? rows_of<Element, 3>
                    : rows == 4 ? rows_of<Element, 4>
                                : rows_of<Element, 5>;
  if (rows > 0) rest(a, lda, b, apart, panels, k, c, ldc, accumulate);
}

/// A tile of M rows, [cols][M]: squares are turned in registers.
template <size_t M>
void pack(const float* x, size_t x_stride, size_t rows, size_t cols, float* tile) {
  for (size_t k = 0; k < cols; k += width) {
    const size_t n = cols - k < width ? cols - k : width;
    for (size_t m = 0; m < M; m += width) {
      Floats v[width];
      for (size_t i = 0; i < width; ++i) {
        const float* const from = x + (m + i) * x_stride + k;
        v[i] = m + i >= rows ? zero() : n == width ? load(from) : load_part(from, n);
      }
      transpose(v);
      for (size_t i = 0; i < n; ++i) store_part(tile + (k + i) * M + m, v[i], M - m < width ? M - m : width);
    }
  }
}

/// Tiles of M rows, as pack() makes them.
template <int M>
void gemm_packed(const float* a, size_t tiles, const std::byte* panel, size_t k, float* c, size_t ldc,
                 bool accumulate) {
  for (size_t i = 0; i < tiles; ++i) {
    tile<F32, M, 1, true>(a + i * k * M, 0, panel, 0, k, c + i * M * ldc, ldc, accumulate);
  }
}

/// `put` stores a register's floats as halves.
template <void put(Floats, std::byte*)>
void store_halves(const float* x, size_t n, std::byte* out) {
  constexpr size_t bytes = sizeof(std::uint16_t);
  size_t i = 0;
  for (; i + width <= n; i += width) put(load(x + i), out + i * bytes);
  if (i < n) {
    std::byte part[width * bytes];
    put(load_part(x + i, n - i), part);
    __builtin_memcpy(out + i * bytes, part, (n - i) * bytes);
  }
}

void store_f32(const float* x, size_t n, std::byte* out) { __builtin_memcpy(out, x, n * sizeof(float)); }

constexpr CacheKernels cache_f32{store_f32, gemm_rows<F32>};
constexpr CacheKernels cache_f16{store_halves<put_f16>, gemm_rows<F16>};
constexpr CacheKernels cache_bf16{store_halves<put_bf16>, gemm_rows<Bf16>};

}  // namespace
}  // namespace fs::cpu

#pragma once
#include <immintrin.h>

#include "cpu/kernels.h"

// What the files share that are compiled with -mavx2 -mfma -mf16c; for them alone. Everything but the tables
// has internal linkage (kernels.h says why).

#if defined(__clang__)
#define FS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace fs::cpu {

extern const WeightKernels avx2_f32, avx2_f16, avx2_bf16, avx2_q8_0, avx2_int4;
extern const Int8Kernels avx2_int8_q8_0, avx2_int8_int4;
extern const CacheKernels avx2_cache_f32, avx2_cache_f16, avx2_cache_bf16;
/// Kernels::tile_rows and gemm_packed.
inline constexpr std::size_t avx2_tile_rows = 6;  // 12 of 16 registers hold sums
void avx2_gemm_packed(const float* a, std::size_t tiles, const float* panel, std::size_t k, float* c,
                      std::size_t ldc, bool accumulate);

namespace {

using std::size_t;

constexpr size_t width = 8;  // floats in a register

inline __m256 load(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 load_part(const float* p, size_t n) {
  alignas(32) float part[width] = {};
  __builtin_memcpy(part, p, n * sizeof(float));
  return _mm256_load_ps(part);
}
inline void store_part(float* p, __m256 v, size_t n) {
  alignas(32) float part[width];
  _mm256_store_ps(part, v);
  __builtin_memcpy(p, part, n * sizeof(float));
}

// How eight stored elements become eight floats, by Dtype.
struct F32 {
  static constexpr size_t bytes = 4;
  static __m256 decode(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr size_t bytes = 2;
  static __m256 decode(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};
struct Bf16 {
  static constexpr size_t bytes = 2;
  static __m256 decode(const std::byte* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
};

/// The fp16 number that a block begins with.
inline float scale_of(const std::byte* block) {
  unsigned short half;
  __builtin_memcpy(&half, block, sizeof half);
  return _cvtsh_ss(half);
}

inline float sum_of(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
inline float max_of(__m256 v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

inline void transpose(__m256 (&v)[width]) {
  __m256 pair[width], quad[width];
  for (size_t i = 0; i < width; i += 2) {
    pair[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  for (size_t i = 0; i < width; i += 4) {
    for (size_t j = 0; j < 2; ++j) {
      quad[i + 2 * j] = _mm256_shuffle_ps(pair[i + j], pair[i + j + 2], 0x44);
      quad[i + 2 * j + 1] = _mm256_shuffle_ps(pair[i + j], pair[i + j + 2], 0xEE);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
  }
}

/// Walks down R stretches of rows side by side: hardware prefetchers follow each stream only to the end of
/// its page, and with four streams they have four pages to work on. One thread of a Zen 3 reads 13.3 GB/s so,
/// where one stream in order gives 7.9, four neighbouring rows 6, and panels of 16 interleaved rows 8.5.
template <class W, int M>
void dot_rows(const std::byte* w, size_t row_bytes, size_t rows, size_t cols, const float* x, size_t x_stride,
              float* out, size_t out_stride) {
  constexpr size_t R = W::template rows_at_once<M>;
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

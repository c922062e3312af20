#pragma once
#include "cpu/activations.h"
#include "cpu/avx2.h"
#include "cpu/vector_dots.h"

// What the files with kernels for int8 activations share; everything has internal linkage (kernels.h says
// why).
namespace fs::cpu {
namespace {

using Digit = signed char;

inline __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m256 broadcast(const float* p) { return _mm256_broadcast_ss(p); }
inline void store_float(float value, void* p) { __builtin_memcpy(p, &value, sizeof value); }
inline size_t blocks_of(size_t cols) { return (cols + int8_block - 1) / int8_block; }

/// quantize_int8(), eight at a time; q is filled up with zeros to a whole block.
inline float quantize(const float* x, size_t n, Digit* q) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  __m256 v[int8_block / width];
  __m256i largest = _mm256_setzero_si256();  // magnitudes as integers: infinity and NaN on top
  for (size_t i = 0; i < int8_block / width; ++i) {
    const size_t at = i * width;
    v[i] = at + width <= n ? load(x + at) : at < n ? load_part(x + at, n - at) : _mm256_setzero_ps();
    largest = _mm256_max_epi32(largest, _mm256_castps_si256(_mm256_and_ps(v[i], magnitude)));
  }
  const float peak = max_of(_mm256_castsi256_ps(largest));
  const bool finite =
      _mm256_testz_si256(_mm256_cmpgt_epi32(largest, _mm256_set1_epi32(0x7F7FFFFF)), _mm256_set1_epi32(-1));
  if (!finite) {
    for (size_t i = 0; i < int8_block; ++i) q[i] = i < n ? 1 : 0;
    return __builtin_nanf("");
  }
  const bool zero = peak < 0x1p-100F;
  const __m256 inverse = _mm256_set1_ps(zero ? 0 : 127 / peak);
  __m256i whole[int8_block / width];
  for (size_t i = 0; i < int8_block / width; ++i) {
    whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));  // ties to even
  }
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]), _mm256_packs_epi32(whole[2], whole[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(packed, order));
  return zero ? 0 : peak / 127;
}

inline int sum_of_digits(const Digit* q) {
  int sum = 0;
  for (size_t i = 0; i < int8_block; ++i) sum += q[i];
  return sum;
}

template <class Format>
void gemm(const std::byte* tiles, size_t n_tiles, const std::byte* panel, size_t cols, float* c, size_t ldc,
          bool accumulate) {
  for (size_t i = 0; i < n_tiles; ++i, tiles += Format::tile_bytes(cols), c += Format::tile_rows * ldc) {
    Format::gemm_tile(tiles, panel, cols, c, ldc, accumulate);
  }
}

template <class F>
constexpr GemmKernels int8_gemm{F::tile_rows, F::tile_bytes, F::pack, nullptr, F::panel, gemm<F>};
template <class F>
constexpr Products int8_products{{F::prepared_floats, F::prepare, dots<F>}, &int8_gemm<F>};

}  // namespace
}  // namespace fs::cpu

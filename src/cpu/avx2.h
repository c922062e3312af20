#pragma once
#include <immintrin.h>

#include "cpu/kernels.h"

// Vectors of eight floats, for the files that are compiled with -mavx2 -mfma -mf16c, and the words in which
// vector_*.h are written. Everything but the tables has internal linkage (kernels.h says why).

#if defined(__clang__)
#define FS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace fs::cpu {

extern const WeightKernels avx2_f32, avx2_f16, avx2_bf16, avx2_q8_0, avx2_int4;
extern const Products avx2_int8_q8_0, avx2_int8_int4;
extern const CacheKernels avx2_cache_f32, avx2_cache_f16, avx2_cache_bf16;

// Products of many tokens in fp32.
inline constexpr std::size_t avx2_tile_rows = 6;  // 12 of 16 registers hold sums
std::size_t avx2_tile_bytes(std::size_t cols);
void avx2_pack(const float* x, std::size_t x_stride, std::size_t rows, std::size_t cols, std::byte* tile);
void avx2_gemm(const std::byte* tiles, std::size_t n_tiles, const std::byte* panel, std::size_t cols,
               float* c, std::size_t ldc, bool accumulate);

namespace {

/// fp32 products with panels as `panel` decodes them.
template <decltype(GemmKernels::panel) panel>
constexpr GemmKernels f32_gemm{avx2_tile_rows, avx2_tile_bytes, avx2_pack, nullptr, panel, avx2_gemm};

using std::size_t;

using Floats = __m256;
constexpr size_t width = 8;       // floats in a register
constexpr size_t most_sums = 12;  // registers that may hold sums

inline Floats zero() { return _mm256_setzero_ps(); }
inline Floats all(float x) { return _mm256_set1_ps(x); }
inline Floats load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
inline Floats load_part(const float* p, size_t n) {
  alignas(32) float part[width] = {};
  __builtin_memcpy(part, p, n * sizeof(float));
  return _mm256_load_ps(part);
}
inline void store_part(float* p, Floats v, size_t n) {
  alignas(32) float part[width];
  _mm256_store_ps(part, v);
  __builtin_memcpy(p, part, n * sizeof(float));
}

inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }  // a·b + c
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
inline Floats negative(Floats a) { return _mm256_xor_ps(a, all(-0.0F)); }
// These two give b where one of them is NaN.
inline Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
/// The nearest integer, of ties the even one.
inline Floats nearest(Floats a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// a · 2^n for integers −126 ≤ n ≤ 127.
inline Floats times_power_of_two(Floats a, Floats n) {
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(a, _mm256_castsi256_ps(exponent));
}
/// 0 where x < bound, else a.
inline Floats zero_if_less(Floats a, Floats x, Floats bound) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, bound, _CMP_LT_OQ), a);
}
/// Of the elements of low and high those with an even (0) or odd (1) index.
inline Floats every_other(Floats low, Floats high, int first) {
  const __m256 mixed = first == 0 ? _mm256_shuffle_ps(low, high, 0x88) : _mm256_shuffle_ps(low, high, 0xDD);
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xD8));
}
inline float first_of(Floats v) { return _mm256_cvtss_f32(v); }
inline float sum_of(Floats v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
inline float max_of(Floats v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}
/// Σ x², in double.
inline double sum_of_squares(const float* x, size_t n) {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  for (size_t i = 0; i < n; i += width) {
    const __m256 v = n - i < width ? load_part(x + i, n - i) : load(x + i);
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                  b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
    low = _mm256_fmadd_pd(a, a, low);
    high = _mm256_fmadd_pd(b, b, high);
  }
  alignas(32) double lane[4];
  _mm256_store_pd(lane, _mm256_add_pd(low, high));
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

// How neighbouring stored elements become floats, by Dtype: a whole register, or n < width of them.
template <class W>
struct Padded {
  static Floats decode_part(const std::byte* p, size_t n) {
    alignas(32) std::byte part[width * sizeof(float)] = {};
    __builtin_memcpy(part, p, n * W::bytes);
    return W::decode(part);
  }
};
struct F32 : Padded<F32> {
  static constexpr size_t bytes = 4;
  static Floats decode(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct F16 : Padded<F16> {
  static constexpr size_t bytes = 2;
  static Floats decode(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};
struct Bf16 : Padded<Bf16> {
  static constexpr size_t bytes = 2;
  static Floats decode(const std::byte* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
};
// Of pairs of bf16, the ones in the lower and in the upper halves.
inline Floats lower_bf16(Floats pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
inline Floats upper_bf16(Floats pairs) {
  return _mm256_and_ps(pairs, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
}
/// n < 16 bf16 in a register of pairs, and zeros.
inline Floats load_pairs(const std::byte* p, size_t n) {
  alignas(32) std::byte part[width * sizeof(float)] = {};
  __builtin_memcpy(part, p, n * Bf16::bytes);
  return F32::decode(part);
}
inline Floats from_int8(const std::byte* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
/// The fp16 number that a block begins with.
inline float scale_of(const std::byte* block) {
  unsigned short half;
  __builtin_memcpy(&half, block, sizeof half);
  return _cvtsh_ss(half);
}

// Floats to what the cache holds, rounded to nearest, ties to even.
inline void put_f16(Floats x, std::byte* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void put_bf16(Floats x, std::byte* to) {
  const __m256i bits = _mm256_castps_si256(x), last = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(last, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
  // A NaN keeps its sign and becomes quiet: rounding could carry it beyond all NaNs.
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i wide = _mm256_blendv_epi8(rounded, _mm256_or_si256(last, _mm256_set1_epi32(0x40)), nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(wide, wide), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
}

inline void transpose(Floats (&v)[width]) {
  Floats pair[width], quad[width];
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

}  // namespace
}  // namespace fs::cpu

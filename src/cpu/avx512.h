#pragma once
#include <immintrin.h>

#include "cpu/kernels.h"

// Vectors of sixteen floats, for the files that are compiled with AVX-512 F, BW, DQ, VL and VNNI, and the
// words in which vector_*.h are written. Everything but the tables has internal linkage (kernels.h says why).

#if defined(__clang__)
#define FS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FS_UNROLL _Pragma("GCC unroll 32")
#endif

namespace fs::cpu {

extern const WeightKernels avx512_f32, avx512_f16, avx512_bf16;
extern const WeightKernels avx512_q8_0, avx512_int4, avx512bf16_bf16;
extern const Products avx512bf16_products;
extern const RoundedAttention avx512bf16_attention;
extern const CacheKernels avx512_cache_f32, avx512_cache_f16, avx512_cache_bf16;

// Products of many tokens in fp32.
inline constexpr std::size_t avx512_tile_rows = 16;  // 512 tokens are whole tiles
std::size_t avx512_tile_bytes(std::size_t cols);
void avx512_pack(const float* x, std::size_t x_stride, std::size_t rows, std::size_t cols, std::byte* tile);
void avx512_gemm(const std::byte* tiles, std::size_t n_tiles, const std::byte* panel, std::size_t cols,
                 float* c, std::size_t ldc, bool accumulate);

namespace {

/// fp32 products with panels as `panel` decodes them.
template <decltype(GemmKernels::panel) panel>
constexpr GemmKernels f32_gemm{avx512_tile_rows, avx512_tile_bytes, avx512_pack, nullptr, panel, avx512_gemm};

using std::size_t;

using Floats = __m512;
constexpr size_t width = 16;      // floats in a register
constexpr size_t most_sums = 24;  // registers that may hold sums

inline __mmask16 first_lanes(size_t n) { return static_cast<__mmask16>((1U << n) - 1); }  // n < 32

inline Floats zero() { return _mm512_setzero_ps(); }
inline Floats all(float x) { return _mm512_set1_ps(x); }
inline Floats load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline Floats load_part(const float* p, size_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void store_part(float* p, Floats v, size_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }

inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }  // a·b + c
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats negative(Floats a) { return _mm512_xor_ps(a, all(-0.0F)); }
// These two give b where one of them is NaN.
inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
/// The nearest integer, of ties the even one.
inline Floats nearest(Floats a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// a · 2^n for integers −126 ≤ n ≤ 127.
inline Floats times_power_of_two(Floats a, Floats n) { return _mm512_scalef_ps(a, n); }
/// 0 where x < bound, else a.
inline Floats zero_if_less(Floats a, Floats x, Floats bound) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), a);
}
/// Of the elements of low and high those with an even (0) or odd (1) index.
inline Floats every_other(Floats low, Floats high, int first) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(first)), high);
}
inline float first_of(Floats v) { return _mm512_cvtss_f32(v); }
inline __m256 lower_half(Floats v) { return _mm512_castps512_ps256(v); }
inline __m256 upper_half(Floats v) { return _mm512_extractf32x8_ps(v, 1); }
inline float sum_of(Floats v) {
  const __m256 h = _mm256_add_ps(lower_half(v), upper_half(v));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
inline float max_of(Floats v) {
  const __m256 h = _mm256_max_ps(lower_half(v), upper_half(v));
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}
/// Σ x², in double.
inline double sum_of_squares(const float* x, size_t n) {
  __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
  for (size_t i = 0; i < n; i += width) {
    const __m512 v = n - i < width ? load_part(x + i, n - i) : load(x + i);
    const __m512d a = _mm512_cvtps_pd(lower_half(v)), b = _mm512_cvtps_pd(upper_half(v));
    low = _mm512_fmadd_pd(a, a, low);
    high = _mm512_fmadd_pd(b, b, high);
  }
  alignas(64) double lane[8];
  _mm512_store_pd(lane, _mm512_add_pd(low, high));
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

// How neighbouring stored elements become floats, by Dtype: a whole register, or n < width of them.
struct F32 {
  static constexpr size_t bytes = 4;
  static Floats decode(const std::byte* p) { return _mm512_loadu_ps(p); }
  static Floats decode_part(const std::byte* p, size_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
};
inline __m256i load_halves(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m256i load_halves(const std::byte* p, size_t n) {
  return _mm256_maskz_loadu_epi16(first_lanes(n), p);
}
struct F16 {
  static constexpr size_t bytes = 2;
  static Floats decode(const std::byte* p) { return _mm512_cvtph_ps(load_halves(p)); }
  static Floats decode_part(const std::byte* p, size_t n) { return _mm512_cvtph_ps(load_halves(p, n)); }
};
struct Bf16 {
  static constexpr size_t bytes = 2;
  static Floats widen(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
  static Floats decode(const std::byte* p) { return widen(load_halves(p)); }
  static Floats decode_part(const std::byte* p, size_t n) { return widen(load_halves(p, n)); }
};
// Of pairs of bf16, the ones in the lower and in the upper halves.
inline Floats lower_bf16(Floats pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
inline Floats upper_bf16(Floats pairs) {
  return _mm512_and_ps(pairs, _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
}
/// n < 32 bf16 in a register of pairs, and zeros.
inline Floats load_pairs(const std::byte* p, size_t n) {
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16((1U << n) - 1, p));
}
/// The fp16 number that a block begins with.
inline float scale_of(const std::byte* block) {
  unsigned short half;
  __builtin_memcpy(&half, block, sizeof half);
  return _cvtsh_ss(half);
}

// Floats to what the cache holds, rounded to nearest, ties to even.
inline void put_f16(Floats x, std::byte* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void put_bf16(Floats x, std::byte* to) {
  const __m512i bits = _mm512_castps_si512(x), last = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(last, _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
  // A NaN keeps its sign and becomes quiet: rounding could carry it beyond all NaNs.
  const __m512i wide =
      _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), last, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(wide));
}

inline void transpose(Floats (&v)[width]) {
  Floats pair[width], quad[width];
  FS_UNROLL for (size_t i = 0; i < width; i += 2) {
    pair[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    pair[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  FS_UNROLL for (size_t i = 0; i < width; i += 4) {
    FS_UNROLL for (size_t j = 0; j < 2; ++j) {
      quad[i + 2 * j] = _mm512_shuffle_ps(pair[i + j], pair[i + j + 2], 0x44);
      quad[i + 2 * j + 1] = _mm512_shuffle_ps(pair[i + j], pair[i + j + 2], 0xEE);
    }
  }
  // quad[4·i + j]: of rows 4·i to 4·i + 3, columns j, 4 + j, 8 + j and 12 + j, a quarter each.
  FS_UNROLL for (size_t j = 0; j < 4; ++j) {
    const Floats even_low = _mm512_shuffle_f32x4(quad[j], quad[4 + j], 0x88),
                 odd_low = _mm512_shuffle_f32x4(quad[j], quad[4 + j], 0xDD),
                 even_high = _mm512_shuffle_f32x4(quad[8 + j], quad[12 + j], 0x88),
                 odd_high = _mm512_shuffle_f32x4(quad[8 + j], quad[12 + j], 0xDD);
    v[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    v[8 + j] = _mm512_shuffle_f32x4(even_low, even_high, 0xDD);
    v[4 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    v[12 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xDD);
  }
}

}  // namespace
}  // namespace fs::cpu

#include <cstdint>

#include "cpu/avx2.h"

namespace fs::cpu {
namespace {

/// c[M][16] (+)= a · b in 2·M registers; b: [k][16] of `Element`. `packed`: a is [k][M], else row-major with
/// row stride lda. A register sums no more than `flush` products before it is added to c: sums of a thousand
/// products in one fp32 chain would put four times the error into every layer.
template <class Element, int M, bool packed>
void tile(const float* a, size_t lda, const std::byte* b, size_t k, float* c, size_t ldc, bool accumulate) {
  constexpr size_t flush = 64;
  for (size_t first = 0; first < k; first += flush) {
    const size_t end = k - first < flush ? k : first + flush;
    __m256 sum[M][2];
    FS_UNROLL for (auto& row : sum) row[0] = row[1] = _mm256_setzero_ps();
    for (size_t i = first; i < end; ++i) {
      const std::byte* const line = b + i * panel_width * Element::bytes;
      const __m256 b0 = Element::decode(line), b1 = Element::decode(line + width * Element::bytes);
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        const __m256 left = _mm256_broadcast_ss(packed ? a + i * M + m : a + m * lda + i);
        sum[m][0] = _mm256_fmadd_ps(left, b0, sum[m][0]);
        sum[m][1] = _mm256_fmadd_ps(left, b1, sum[m][1]);
      }
    }
    FS_UNROLL for (size_t m = 0; m < M; ++m) {
      float* const to = c + m * ldc;
      if (accumulate || first > 0) {
        sum[m][0] = _mm256_add_ps(load(to), sum[m][0]);
        sum[m][1] = _mm256_add_ps(load(to + width), sum[m][1]);
      }
      _mm256_storeu_ps(to, sum[m][0]);
      _mm256_storeu_ps(to + width, sum[m][1]);
    }
  }
}

template <class Element>
void gemm_rows(const float* a, size_t lda, size_t rows, const std::byte* b, size_t k, float* c, size_t ldc,
               bool accumulate) {
  for (; rows >= 6; rows -= 6, a += 6 * lda, c += 6 * ldc) {
    tile<Element, 6, false>(a, lda, b, k, c, ldc, accumulate);
  }
  const auto rest = rows == 1   ? tile<Element, 1, false>
                    : rows == 2 ? tile<Element, 2, false>
                    : rows == 3 ? tile<Element, 3, false>
                    : rows == 4 ? tile<Element, 4, false>
                                : tile<Element, 5, false>;
  if (rows > 0) rest(a, lda, b, k, c, ldc, accumulate);
}

// Floats to what the cache holds: eight at a time, and what is left.
void store_eight_f16(__m256 x, std::byte* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
void store_eight_bf16(__m256 x, std::byte* to) {
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

template <void store_eight(__m256, std::byte*)>
void store_halves(const float* x, size_t n, std::byte* out) {
  constexpr size_t bytes = sizeof(std::uint16_t);
  size_t i = 0;
  for (; i + width <= n; i += width) store_eight(load(x + i), out + i * bytes);
  if (i < n) {
    std::byte part[width * bytes];
    store_eight(load_part(x + i, n - i), part);
    __builtin_memcpy(out + i * bytes, part, (n - i) * bytes);
  }
}

void store_f32(const float* x, size_t n, std::byte* out) { __builtin_memcpy(out, x, n * sizeof(float)); }

}  // namespace

void avx2_gemm_packed(const float* a, std::size_t tiles, const float* panel, std::size_t k, float* c,
                      std::size_t ldc, bool accumulate) {
  constexpr int height = avx2_tile_rows;
  for (size_t i = 0; i < tiles; ++i) {
    tile<F32, height, true>(a + i * k * height, 0, reinterpret_cast<const std::byte*>(panel), k,
                            c + i * height * ldc, ldc, accumulate);
  }
}

constexpr CacheKernels avx2_cache_f32{store_f32, gemm_rows<F32>};
constexpr CacheKernels avx2_cache_f16{store_halves<store_eight_f16>, gemm_rows<F16>};
constexpr CacheKernels avx2_cache_bf16{store_halves<store_eight_bf16>, gemm_rows<Bf16>};

}  // namespace fs::cpu

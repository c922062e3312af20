#include <immintrin.h>

#include "cpu/kernels.h"

// Compiled with -mavx2 -mfma -mf16c: everything but the table has internal linkage (kernels.h says why).

#if defined(__clang__)
#define FS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace fs::cpu {
namespace {

using std::size_t;

constexpr size_t width = 8;  // floats in a register

__m256 load(const float* p) { return _mm256_loadu_ps(p); }
__m256 load_part(const float* p, size_t n) {
  alignas(32) float part[width] = {};
  __builtin_memcpy(part, p, n * sizeof(float));
  return _mm256_load_ps(part);
}
void store_part(float* p, __m256 v, size_t n) {
  alignas(32) float part[width];
  _mm256_store_ps(part, v);
  __builtin_memcpy(p, part, n * sizeof(float));
}

float sum_of(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
float max_of(__m256 v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

// How eight stored weights become eight floats, by Dtype.
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
template <class W>
__m256 decode_part(const std::byte* p, size_t n) {
  alignas(32) std::byte part[width * W::bytes] = {};
  __builtin_memcpy(part, p, n * W::bytes);
  return W::decode(part);
}

/// R rows of weights, `apart` bytes from each other, against M tokens, with U sums for each pair: enough
/// independent chains to hide the latency of an FMA, few enough for 16 registers. Every `flush` columns they
/// are added to a total, which keeps the rounding errors of long rows down. A row's sum is the same for every
/// R.
template <class W, int R, int M, int U>
void dot_tile(const std::byte* w, size_t apart, size_t cols, const float* x, float* out, size_t out_apart,
              size_t out_stride) {
  constexpr size_t flush = 512;
  __m256 total[R][M];
  for (auto& row : total) {
    for (auto& token : row) token = _mm256_setzero_ps();
  }
  for (size_t first = 0; first < cols; first += flush) {
    const size_t end = cols - first < flush ? cols : first + flush;
    __m256 sum[R][M][U];
    FS_UNROLL for (auto& row : sum) {
      FS_UNROLL for (auto& token : row) { FS_UNROLL for (auto& one : token) one = _mm256_setzero_ps(); }
    }
    size_t k = first;
    for (; k + U * width <= end; k += U * width) {
      FS_UNROLL for (size_t u = 0; u < U; ++u) {
        const size_t at = k + u * width;
        __m256 right[M];
        FS_UNROLL for (size_t m = 0; m < M; ++m) right[m] = load(x + m * cols + at);
        FS_UNROLL for (size_t r = 0; r < R; ++r) {
          const __m256 weights = W::decode(w + r * apart + at * W::bytes);
          FS_UNROLL for (size_t m = 0; m < M; ++m) sum[r][m][u] =
              _mm256_fmadd_ps(weights, right[m], sum[r][m][u]);
        }
      }
    }
    FS_UNROLL for (size_t r = 0; r < R; ++r) {
      FS_UNROLL for (size_t m = 0; m < M; ++m) {
        FS_UNROLL for (size_t u = 1; u < U; ++u) sum[r][m][0] = _mm256_add_ps(sum[r][m][0], sum[r][m][u]);
        total[r][m] = _mm256_add_ps(total[r][m], sum[r][m][0]);
      }
    }
    for (; k < end; k += width) {
      const size_t n = end - k < width ? end - k : width;
      for (size_t r = 0; r < R; ++r) {
        const __m256 weights = decode_part<W>(w + r * apart + k * W::bytes, n);
        for (size_t m = 0; m < M; ++m) {
          total[r][m] = _mm256_fmadd_ps(weights, load_part(x + m * cols + k, n), total[r][m]);
        }
      }
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t m = 0; m < M; ++m) out[m * out_stride + r * out_apart] = sum_of(total[r][m]);
  }
}

/// Walks down R stretches of rows side by side: hardware prefetchers follow each stream only to the end of
/// its page, and with four streams they have four pages to work on. One thread of a Zen 3 reads 13.3 GB/s so,
/// where one stream in order gives 7.9, four neighbouring rows 6, and panels of 16 interleaved rows 8.5.
template <class W, int M>
void dot_rows(const std::byte* w, size_t row_bytes, size_t rows, size_t cols, const float* x, float* out,
              size_t out_stride) {
  constexpr size_t R = M <= 3 ? 4 : 2;
  constexpr int U = M == 1 ? 2 : 1;
  const size_t stretch = rows / R;
  for (size_t r = 0; r < stretch; ++r) {
    dot_tile<W, R, M, U>(w + r * row_bytes, stretch * row_bytes, cols, x, out + r, stretch, out_stride);
  }
  for (size_t r = stretch * R; r < rows; ++r) {
    dot_tile<W, 1, M, U>(w + r * row_bytes, 0, cols, x, out + r, 0, out_stride);
  }
}

template <class W>
void dots(const std::byte* w, size_t row_bytes, size_t rows, size_t cols, const float* x, size_t tokens,
          float* out, size_t out_stride) {
  while (tokens > 0) {
    const size_t m = tokens <= 6 ? tokens : tokens < 12 ? tokens / 2 : 6;
    switch (m) {
      case 1:
        dot_rows<W, 1>(w, row_bytes, rows, cols, x, out, out_stride);
        break;
      case 2:
        dot_rows<W, 2>(w, row_bytes, rows, cols, x, out, out_stride);
        break;
      case 3:
        dot_rows<W, 3>(w, row_bytes, rows, cols, x, out, out_stride);
        break;
      case 4:
        dot_rows<W, 4>(w, row_bytes, rows, cols, x, out, out_stride);
        break;
      case 5:
        dot_rows<W, 5>(w, row_bytes, rows, cols, x, out, out_stride);
        break;
      default:
        dot_rows<W, 6>(w, row_bytes, rows, cols, x, out, out_stride);
        break;
    }
    x += m * cols;
    out += m * out_stride;
    tokens -= m;
  }
}

void transpose(__m256 (&v)[width]) {
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

template <class W>
void panel(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t count, float* out) {
  for (size_t k = 0; k < count; k += width) {
    const size_t n = count - k < width ? count - k : width;
    for (size_t half = 0; half < panel_width; half += width) {
      __m256 v[width];
      for (size_t i = 0; i < width; ++i) {
        const std::byte* const from = w + (half + i) * row_bytes + (first_col + k) * W::bytes;
        v[i] = half + i >= rows ? _mm256_setzero_ps()
               : n == width     ? W::decode(from)
                                : decode_part<W>(from, n);
      }
      transpose(v);
      for (size_t i = 0; i < n; ++i) _mm256_storeu_ps(out + (k + i) * panel_width + half, v[i]);
    }
  }
}

/// Of bf16, whole panels are turned two columns at a time: a pair is as wide as a float, and its halves are
/// the two columns once they stand above 16 zero bits.
void panel_bf16(const std::byte* w, size_t row_bytes, size_t rows, size_t first_col, size_t count,
                float* out) {
  const __m256 upper = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xFFFF0000)));
  const size_t whole = rows == panel_width ? count / (2 * width) * (2 * width) : 0;
  for (size_t k = 0; k < whole; k += 2 * width) {
    for (size_t half = 0; half < panel_width; half += width) {
      const std::byte* const from = w + half * row_bytes + (first_col + k) * Bf16::bytes;
      __m256 v[width];
      for (size_t i = 0; i < width; ++i) v[i] = F32::decode(from + i * row_bytes);
      transpose(v);
      float* const to = out + k * panel_width + half;
      for (size_t i = 0; i < width; ++i) {
        const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v[i]), 16));
        _mm256_storeu_ps(to + 2 * i * panel_width, even);
        _mm256_storeu_ps(to + (2 * i + 1) * panel_width, _mm256_and_ps(v[i], upper));
      }
    }
  }
  panel<Bf16>(w, row_bytes, rows, first_col + whole, count - whole, out + whole * panel_width);
}

/// c[M][16] (+)= a · b in 2·M registers. `packed`: a is [k][M], else row-major with row stride lda. A
/// register sums no more than `flush` products before it is added to c: sums of a thousand products in one
/// fp32 chain would put four times the error into every layer.
template <int M, bool packed>
void tile(const float* a, size_t lda, const float* b, size_t k, float* c, size_t ldc, bool accumulate) {
  constexpr size_t flush = 64;
  for (size_t first = 0; first < k; first += flush) {
    const size_t end = k - first < flush ? k : first + flush;
    __m256 sum[M][2];
    FS_UNROLL for (auto& row : sum) row[0] = row[1] = _mm256_setzero_ps();
    for (size_t i = first; i < end; ++i) {
      const __m256 b0 = load(b + i * panel_width), b1 = load(b + i * panel_width + width);
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

constexpr size_t tile_rows = 6;  // 12 of 16 registers hold sums

void gemm_packed(const float* a, size_t tiles, const float* b, size_t k, float* c, size_t ldc,
                 bool accumulate) {
  for (size_t i = 0; i < tiles; ++i) {
    tile<tile_rows, true>(a + i * k * tile_rows, 0, b, k, c + i * tile_rows * ldc, ldc, accumulate);
  }
}

void gemm_rows(const float* a, size_t lda, size_t rows, const float* b, size_t k, float* c, size_t ldc,
               bool accumulate) {
  for (; rows >= 6; rows -= 6, a += 6 * lda, c += 6 * ldc) tile<6, false>(a, lda, b, k, c, ldc, accumulate);
  switch (rows) {
    case 1:
      tile<1, false>(a, lda, b, k, c, ldc, accumulate);
      break;
    case 2:
      tile<2, false>(a, lda, b, k, c, ldc, accumulate);
      break;
    case 3:
      tile<3, false>(a, lda, b, k, c, ldc, accumulate);
      break;
    case 4:
      tile<4, false>(a, lda, b, k, c, ldc, accumulate);
      break;
    case 5:
      tile<5, false>(a, lda, b, k, c, ldc, accumulate);
      break;
    default:
      break;
  }
}

void rms_norm(const float* x, const float* weight, size_t n, double eps, float* out) {
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
  const double mean = ((lane[0] + lane[1]) + (lane[2] + lane[3])) / static_cast<double>(n);
  const __m256 factor = _mm256_set1_ps(static_cast<float>(1 / __builtin_sqrt(mean + eps)));
  for (size_t i = 0; i < n; i += width) {
    const size_t left = n - i;
    if (left >= width) {
      _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(load(x + i), factor), load(weight + i)));
    } else {
      const __m256 v = _mm256_mul_ps(load_part(x + i, left), factor);
      store_part(out + i, _mm256_mul_ps(v, load_part(weight + i, left)), left);
    }
  }
}

void rope(float* head, const float* cosines, const float* sines, size_t half) {
  size_t i = 0;
  for (; i + width <= half; i += width) {
    const __m256 a = load(head + i), b = load(head + half + i), c = load(cosines + i), s = load(sines + i);
    _mm256_storeu_ps(head + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(head + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

/// exp(x) = 2^n · exp(r), n = round(x / ln 2), |r| ≤ ln 2 / 2; the Taylor series of exp(r) up to r⁷/7! errs
/// by 5e-9 at most. Below −87 (the last normal number is exp(−87.3)) it gives 0, above 88.3 exp(88.3); NaN
/// stays NaN.
__m256 exp_of(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-87.0F);
  // max and min return their second operand where one is NaN.
  const __m256 bounded = _mm256_min_ps(_mm256_set1_ps(88.3F), _mm256_max_ps(lowest, x));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(bounded, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r =
      _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), bounded);  // ln 2 in two parts, the first exact
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 e = _mm256_set1_ps(1.0F / 5040);
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0F / 720));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0F / 120));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0F / 24));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1.0F / 6));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(0.5F));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1));
  e = _mm256_fmadd_ps(e, r, _mm256_set1_ps(1));
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  const __m256 value = _mm256_mul_ps(e, _mm256_castsi256_ps(exponent));
  return _mm256_andnot_ps(_mm256_cmp_ps(x, lowest, _CMP_LT_OQ), value);
}

float softmax_step(float* scores, size_t n, float* peak, float* total) {
  if (n == 0) return 1;
  __m256 largest = _mm256_set1_ps(*peak);
  size_t i = 0;
  for (; i + width <= n; i += width) largest = _mm256_max_ps(largest, load(scores + i));
  float top = max_of(largest);
  for (; i < n; ++i) top = scores[i] > top ? scores[i] : top;

  const __m256 shift = _mm256_set1_ps(top);
  __m256 sum = _mm256_setzero_ps();
  for (i = 0; i + width <= n; i += width) {
    const __m256 weight = exp_of(_mm256_sub_ps(load(scores + i), shift));
    _mm256_storeu_ps(scores + i, weight);
    sum = _mm256_add_ps(sum, weight);
  }
  float tail = 0;
  if (i < n) {
    store_part(scores + i, exp_of(_mm256_sub_ps(load_part(scores + i, n - i), shift)), n - i);
    for (; i < n; ++i) tail += scores[i];
  }
  const float factor = _mm256_cvtss_f32(exp_of(_mm256_sub_ps(_mm256_set1_ps(*peak), shift)));
  *peak = top;
  *total = *total * factor + (sum_of(sum) + tail);
  return factor;
}

void swiglu(float* gate, const float* up, size_t n) {
  const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0F);
  for (size_t i = 0; i < n; i += width) {
    const size_t left = n - i;
    const __m256 g = left < width ? load_part(gate + i, left) : load(gate + i);
    const __m256 u = left < width ? load_part(up + i, left) : load(up + i);
    const __m256 act = _mm256_mul_ps(_mm256_div_ps(g, _mm256_add_ps(one, exp_of(_mm256_xor_ps(g, sign)))), u);
    if (left < width) {
      store_part(gate + i, act, left);
    } else {
      _mm256_storeu_ps(gate + i, act);
    }
  }
}

void add(float* x, const float* delta, size_t n) {
  size_t i = 0;
  for (; i + width <= n; i += width) _mm256_storeu_ps(x + i, _mm256_add_ps(load(x + i), load(delta + i)));
  for (; i < n; ++i) x[i] += delta[i];
}

void scale(float* x, float factor, size_t n) {
  size_t i = 0;
  const __m256 f = _mm256_set1_ps(factor);
  for (; i + width <= n; i += width) _mm256_storeu_ps(x + i, _mm256_mul_ps(load(x + i), f));
  for (; i < n; ++i) x[i] *= factor;
}

}  // namespace

constexpr Kernels avx2_kernels{
    .name = "avx2",
    .f32 = {dots<F32>, panel<F32>},
    .f16 = {dots<F16>, panel<F16>},
    .bf16 = {dots<Bf16>, panel_bf16},
    .tile_rows = tile_rows,
    .gemm_packed = gemm_packed,
    .gemm_rows = gemm_rows,
    .rms_norm = rms_norm,
    .rope = rope,
    .softmax_step = softmax_step,
    .swiglu = swiglu,
    .add = add,
    .scale = scale,
};

}  // namespace fs::cpu

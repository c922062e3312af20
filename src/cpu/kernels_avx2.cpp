#include "cpu/avx2.h"

namespace fs::cpu {
namespace {

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
    .f32 = &avx2_f32,
    .f16 = &avx2_f16,
    .bf16 = &avx2_bf16,
    .q8_0 = &avx2_q8_0,
    .int4 = &avx2_int4,
    .cache_f32 = &avx2_cache_f32,
    .cache_f16 = &avx2_cache_f16,
    .cache_bf16 = &avx2_cache_bf16,
    .tile_rows = avx2_tile_rows,
    .gemm_packed = avx2_gemm_packed,
    .rms_norm = rms_norm,
    .rope = rope,
    .softmax_step = softmax_step,
    .swiglu = swiglu,
    .add = add,
    .scale = scale,
};

}  // namespace fs::cpu

#pragma once

// What is done with activations, in the words of whichever vector header was included first (avx2.h,
// avx512.h). Everything has internal linkage (kernels.h says why).
namespace fs::cpu {
namespace {

void rms_norm(const float* x, const float* weight, size_t n, double eps, float* out) {
  const double mean = sum_of_squares(x, n) / static_cast<double>(n);
  const Floats factor = all(static_cast<float>(1 / __builtin_sqrt(mean + eps)));
  size_t i = 0;
  for (; i + width <= n; i += width) store(out + i, mul(mul(load(x + i), factor), load(weight + i)));
  if (i < n) {
    const Floats v = mul(load_part(x + i, n - i), factor);
    store_part(out + i, mul(v, load_part(weight + i, n - i)), n - i);
  }
}

void rope(float* head, const float* cosines, const float* sines, size_t half) {
  size_t i = 0;
  for (; i + width <= half; i += width) {
    const Floats a = load(head + i), b = load(head + half + i), c = load(cosines + i), s = load(sines + i);
    store(head + i, sub(mul(a, c), mul(b, s)));
    store(head + half + i, fma(b, c, mul(a, s)));
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
inline Floats exp_of(Floats x) {
  const Floats lowest = all(-87.0F);
  const Floats bounded = smaller(all(88.3F), larger(lowest, x));  // NaN is kept
  const Floats n = nearest(mul(bounded, all(1.44269504F)));
  Floats r = fma(n, all(-0.693359375F), bounded);  // ln 2 in two parts, the first exact
  r = fma(n, all(2.12194440e-4F), r);
  Floats e = all(1.0F / 5040);
  e = fma(e, r, all(1.0F / 720));
  e = fma(e, r, all(1.0F / 120));
  e = fma(e, r, all(1.0F / 24));
  e = fma(e, r, all(1.0F / 6));
  e = fma(e, r, all(0.5F));
  e = fma(e, r, all(1));
  e = fma(e, r, all(1));
  return zero_if_less(times_power_of_two(e, n), x, lowest);
}

float softmax_step(float* scores, size_t n, float* peak, float* total) {
  if (n == 0) return 1;
  Floats largest = all(*peak);
  size_t i = 0;
  for (; i + width <= n; i += width) largest = larger(largest, load(scores + i));
  float top = max_of(largest);
  for (; i < n; ++i) top = scores[i] > top ? scores[i] : top;

  const Floats shift = all(top);
  Floats sum = zero();
  for (i = 0; i + width <= n; i += width) {
    const Floats weight = exp_of(sub(load(scores + i), shift));
    store(scores + i, weight);
    sum = add(sum, weight);
  }
  float tail = 0;
  if (i < n) {
    store_part(scores + i, exp_of(sub(load_part(scores + i, n - i), shift)), n - i);
    for (; i < n; ++i) tail += scores[i];
  }
  const float factor = first_of(exp_of(sub(all(*peak), shift)));
  *peak = top;
  *total = *total * factor + (sum_of(sum) + tail);
  return factor;
}

void swiglu(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; i += width) {
    const size_t left = n - i;
    const Floats g = left < width ? load_part(gate + i, left) : load(gate + i);
    const Floats u = left < width ? load_part(up + i, left) : load(up + i);
    const Floats act = mul(div(g, add(all(1), exp_of(negative(g)))), u);
    if (left < width) {
      store_part(out + i, act, left);
    } else {
      store(out + i, act);
    }
  }
}

void add(float* x, const float* delta, size_t n) {
  size_t i = 0;
  for (; i + width <= n; i += width) store(x + i, add(load(x + i), load(delta + i)));
  for (; i < n; ++i) x[i] += delta[i];
}

void scale(float* x, float factor, size_t n) {
  size_t i = 0;
  const Floats f = all(factor);
  for (; i + width <= n; i += width) store(x + i, mul(load(x + i), f));
  for (; i < n; ++i) x[i] *= factor;
}

}  // namespace
}  // namespace fs::cpu

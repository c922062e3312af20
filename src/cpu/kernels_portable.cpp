#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cpu/kernels.h"
#include "model/dtype.h"

namespace fs::cpu {
namespace {

using model::Dtype;

/// Sums that run side by side, in an order fixed by the length alone: the compiler keeps them in vector
/// registers.
constexpr std::size_t lanes = 16;
/// Weights decoded at a time, whole blocks of every format: small enough to stay in the first-level cache
/// with the activations they meet.
constexpr std::size_t stretch = 512;

float sum_of(const float* lane) {
  float pair[lanes];
  std::copy(lane, lane + lanes, pair);
  for (std::size_t width = lanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) pair[i] += pair[i + width];
  }
  return pair[0];
}

float dot(const float* a, const float* b, std::size_t n) {
  float sum[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) sum[lane] += a[i] * b[i];
  return sum_of(sum);
}

template <Dtype dtype>
void dots(const std::byte* w, std::size_t row_bytes, std::size_t rows, std::size_t cols, const float* x,
          std::size_t x_stride, std::size_t tokens, float* out, std::size_t out_stride) {
  float decoded[stretch];
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t k = 0; k < cols; k += stretch) {
      const std::size_t count = std::min(stretch, cols - k);
      model::decode(dtype, w + r * row_bytes + model::row_bytes(dtype, k), {decoded, count});
      for (std::size_t t = 0; t < tokens; ++t) {
        float& sum = out[t * out_stride + r];
        const float part = dot(decoded, x + t * x_stride + k, count);
        sum = k == 0 ? part : sum + part;
      }
    }
  }
}

template <Dtype dtype>
void panel(const std::byte* w, std::size_t row_bytes, std::size_t rows, std::size_t first_col,
           std::size_t count, std::byte* out) {
  auto* const to = reinterpret_cast<float*>(out);
  float decoded[stretch];
  for (std::size_t r = 0; r < panel_width; ++r) {
    for (std::size_t k = 0; k < count; k += stretch) {
      const std::size_t part = std::min(stretch, count - k);
      if (r < rows) {
        model::decode(dtype, w + r * row_bytes + model::row_bytes(dtype, first_col + k), {decoded, part});
      } else {
        std::fill(decoded, decoded + part, 0.0F);
      }
      for (std::size_t i = 0; i < part; ++i) to[(k + i) * panel_width + r] = decoded[i];
    }
  }
}

/// c[M][16] (+)= a · b, where a's element (row, k) lies at a[row·row_step + k·k_step]. No more than `flush`
/// products are summed before they are added to c: sums of a thousand products in one fp32 chain would put
/// four times the error into every layer.
constexpr std::size_t flush = 64;
template <std::size_t M>
void tile(const float* a, std::size_t row_step, std::size_t k_step, const float* b, std::size_t k, float* c,
          std::size_t ldc, bool accumulate) {
  for (std::size_t first = 0; first < k; first += flush) {
    const std::size_t end = std::min(k, first + flush);
    float sum[M][panel_width] = {};
    for (std::size_t i = first; i < end; ++i) {
      for (std::size_t m = 0; m < M; ++m) {
        const float left = a[m * row_step + i * k_step];
        for (std::size_t j = 0; j < panel_width; ++j) sum[m][j] += left * b[i * panel_width + j];
      }
    }
    for (std::size_t m = 0; m < M; ++m) {
      float* const to = c + m * ldc;
      for (std::size_t j = 0; j < panel_width; ++j) {
        to[j] = accumulate || first > 0 ? to[j] + sum[m][j] : sum[m][j];
      }
    }
  }
}

constexpr std::size_t tile_rows = 4;

std::size_t tile_bytes(std::size_t cols) { return cols * tile_rows * sizeof(float); }

void pack(const float* x, std::size_t x_stride, std::size_t rows, std::size_t cols, std::byte* tile) {
  auto* const to = reinterpret_cast<float*>(tile);
  for (std::size_t k = 0; k < cols; ++k) {
    for (std::size_t m = 0; m < tile_rows; ++m) to[k * tile_rows + m] = m < rows ? x[m * x_stride + k] : 0;
  }
}

void gemm(const std::byte* tiles, std::size_t n_tiles, const std::byte* panel, std::size_t cols, float* c,
          std::size_t ldc, bool accumulate) {
  const auto* const a = reinterpret_cast<const float*>(tiles);
  for (std::size_t i = 0; i < n_tiles; ++i) {
    tile<tile_rows>(a + i * cols * tile_rows, 1, tile_rows, reinterpret_cast<const float*>(panel), cols,
                    c + i * tile_rows * ldc, ldc, accumulate);
  }
}

template <Dtype dtype>
void gemm_panel(const float* a, std::size_t lda, std::size_t rows, const std::byte* b, std::size_t k,
                float* c, std::size_t ldc, bool accumulate) {
  float panel[flush * panel_width];
  for (std::size_t first = 0; first < k; first += flush) {
    const std::size_t count = std::min(flush, k - first);
    model::decode(dtype, b + model::row_bytes(dtype, first * panel_width), {panel, count * panel_width});
    const bool add_up = accumulate || first > 0;
    std::size_t m = 0;
    for (; m + 4 <= rows; m += 4) {
      tile<4>(a + m * lda + first, lda, 1, panel, count, c + m * ldc, ldc, add_up);
    }
    for (; m < rows; ++m) tile<1>(a + m * lda + first, lda, 1, panel, count, c + m * ldc, ldc, add_up);
  }
}

template <Dtype dtype>
void gemm_rows(const float* a, std::size_t lda, std::size_t rows, const std::byte* b, std::size_t apart,
               std::size_t panels, std::size_t k, float* c, std::size_t ldc, bool accumulate) {
  for (std::size_t p = 0; p < panels; ++p) {
    gemm_panel<dtype>(a, lda, rows, b + p * apart, k, c + p * panel_width, ldc, accumulate);
  }
}

template <Dtype dtype>
void store(const float* x, std::size_t n, std::byte* out) {
  for (std::size_t i = 0; i < n; ++i) {
    if constexpr (dtype == Dtype::f32) {
      std::memcpy(out + i * sizeof(float), x + i, sizeof(float));
    } else {
      // A NaN keeps its sign and becomes quiet: rounding could carry it beyond all NaNs.
      const auto bits = dtype == Dtype::f16 ? model::float_to_f16(x[i])
                        : std::isnan(x[i])
                            ? static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x[i]) >> 16 | 0x40U)
                            : model::float_to_bf16(x[i]);
      std::memcpy(out + i * sizeof bits, &bits, sizeof bits);
    }
  }
}

void rms_norm(const float* x, const float* weight, std::size_t n, double eps, float* out) {
  double squares[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) squares[lane] += double{x[i + lane]} * x[i + lane];
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) squares[lane] += double{x[i]} * x[i];
  double total = 0;
  for (const double lane : squares) total += lane;
  const auto factor = static_cast<float>(1 / std::sqrt(total / static_cast<double>(n) + eps));
  for (i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void rope(float* head, const float* cosines, const float* sines, std::size_t half) {
  for (std::size_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

/// exp(x) = 2^n · exp(r), n = round(x / ln 2), |r| ≤ ln 2 / 2; the Taylor series of exp(r) up to r⁷/7! errs
/// by 5e-9 at most. Below −87 (the last normal number is exp(−87.3)) it gives 0, above 88.3 exp(88.3); NaN
/// stays NaN. Written without branches so that the loops over it become vector code.
inline float exp_of(float x) {
  constexpr float highest = 88.3F, lowest = -87.0F;
  const float bounded = x > highest ? highest : x < lowest ? lowest : x;
  constexpr float magic = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits of the sum
  const float shifted = bounded * 1.44269504F + magic, n = shifted - magic;
  const float r =
      (bounded - n * 0.693359375F) - n * -2.12194440e-4F;  // ln 2 in two parts, n times the first exact
  float e = 1.0F / 5040;
  e = e * r + 1.0F / 720;
  e = e * r + 1.0F / 120;
  e = e * r + 1.0F / 24;
  e = e * r + 1.0F / 6;
  e = e * r + 0.5F;
  e = e * r + 1;
  e = e * r + 1;
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127U) << 23);
  return x < lowest ? 0 : e * power;
}

float softmax_step(float* scores, std::size_t n, float* peak, float* total) {
  if (n == 0) return 1;
  float largest = *peak;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, scores[i]);
  float sum[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      scores[i + lane] = exp_of(scores[i + lane] - largest);
      sum[lane] += scores[i + lane];
    }
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) sum[lane] += scores[i] = exp_of(scores[i] - largest);
  const float factor = exp_of(*peak - largest);
  *peak = largest;
  *total = *total * factor + sum_of(sum);
  return factor;
}

void swiglu(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = gate[i] / (1 + exp_of(-gate[i])) * up[i];
}

void add(float* x, const float* delta, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += delta[i];
}

void scale(float* x, float factor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] *= factor;
}

template <Dtype dtype>
constexpr GemmKernels gemm_kernels{tile_rows, tile_bytes, pack, nullptr, panel<dtype>, gemm};
template <Dtype dtype>
constexpr WeightKernels weight_kernels{{{nullptr, nullptr, dots<dtype>}, &gemm_kernels<dtype>}};
template <Dtype dtype>
constexpr CacheKernels cache_kernels{store<dtype>, gemm_rows<dtype>};

}  // namespace

constexpr Kernels portable_kernels{
    .name = "portable",
    .f32 = &weight_kernels<Dtype::f32>,
    .f16 = &weight_kernels<Dtype::f16>,
    .bf16 = &weight_kernels<Dtype::bf16>,
    .q8_0 = &weight_kernels<Dtype::q8_0>,
    .int4 = &weight_kernels<Dtype::int4>,
    .cache_f32 = &cache_kernels<Dtype::f32>,
    .cache_f16 = &cache_kernels<Dtype::f16>,
    .cache_bf16 = &cache_kernels<Dtype::bf16>,
    .attention_bf16 = nullptr,
    .rms_norm = rms_norm,
    .rope = rope,
    .softmax_step = softmax_step,
    .swiglu = swiglu,
    .add = add,
    .scale = scale,
};

}  // namespace fs::cpu

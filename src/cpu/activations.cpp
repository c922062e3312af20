#include "cpu/activations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace fs::cpu {
namespace {

/// The largest magnitude; infinite or NaN if any value is: as integers, magnitudes are in the order of their
/// values, with infinity and NaN on top.
float largest_magnitude(const float* x, std::size_t n) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    largest = std::max(largest, static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU));
  }
  return std::bit_cast<float>(largest);
}

}  // namespace

float quantize_int8(const float* x, std::size_t n, signed char* q) {
  const float largest = largest_magnitude(x, n);
  if (!std::isfinite(largest)) {
    std::fill_n(q, n, static_cast<signed char>(1));
    return std::numeric_limits<float>::quiet_NaN();
  }
  const bool zero = largest < 0x1p-100F;
  const float inverse = zero ? 0 : 127 / largest;
  constexpr float magic = 0x1.8p23F;  // adding it leaves the nearest integer, of ties the even one
  for (std::size_t i = 0; i < n; ++i) {
    q[i] = static_cast<signed char>(static_cast<int>(x[i] * inverse + magic - magic));
  }
  return zero ? 0 : largest / 127;
}

void round_int8(const float* x, std::size_t n, float* out) {
  signed char q[int8_block];
  for (std::size_t i = 0; i < n; i += int8_block) {
    const std::size_t count = std::min(int8_block, n - i);
    const float d = quantize_int8(x + i, count, q);
    for (std::size_t j = 0; j < count; ++j) out[i + j] = d * static_cast<float>(q[j]);
  }
}

void round_bf16(const float* x, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i]);
    const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) & 0xFFFF0000U;
    out[i] = std::isnan(x[i]) ? x[i] : std::bit_cast<float>(rounded);
  }
}

}  // namespace fs::cpu

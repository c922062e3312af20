#include "model/dtype.h"

#include <cstring>

namespace fs::model {
namespace {

/// The element at `data`, which need not be aligned: a tensor may start at any byte of its file.
template <class Bits>
Bits load(const std::byte* data) {
  Bits bits;
  std::memcpy(&bits, data, sizeof bits);
  return bits;
}

/// Without branches, so that decode() vectorises: moves exponent and fraction into place, then corrects the
/// exponent's bias (15 → 127) by an exact multiplication, which normalises subnormals on the way. Infinity
/// and NaN are the one exponent that this gets wrong.
float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16, magnitude = bits & 0x7FFFU;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  const std::uint32_t special = magnitude >= 0x7C00U ? 0x7F800000U : 0U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

}  // namespace

std::string_view name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "F32";
    case Dtype::f16:
      return "F16";
    case Dtype::bf16:
      return "BF16";
  }
  return "";
}

std::optional<Dtype> dtype_from_name(std::string_view text) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    if (name(dtype) == text) return dtype;
  }
  return std::nullopt;
}

std::size_t element_bytes(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }

float f16_to_float(std::uint16_t bits) { return half_to_float(bits); }

void decode(Dtype dtype, const std::byte* data, std::span<float> out) {
  const std::size_t count = out.size();
  float* const to = out.data();
  switch (dtype) {
    case Dtype::f32:
      if (count != 0) std::memcpy(to, data, count * sizeof(float));
      return;
    case Dtype::f16:
      for (std::size_t i = 0; i < count; ++i) to[i] = half_to_float(load<std::uint16_t>(data + 2 * i));
      return;
    case Dtype::bf16:
      for (std::size_t i = 0; i < count; ++i) to[i] = bf16_to_float(load<std::uint16_t>(data + 2 * i));
      return;
  }
}

}  // namespace fs::model

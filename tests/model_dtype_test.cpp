#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "model/dtype.h"

namespace fs::model {
namespace {

TEST(Dtype, NamesAreSafetensorsAndRoundTrip) {
  EXPECT_EQ(name(Dtype::q8_0), "Q8_0");
  EXPECT_EQ(name(Dtype::int4), "INT4");
  EXPECT_EQ(name(Dtype::bf16), "BF16");
  EXPECT_EQ(name(Dtype::f16), "F16");
  EXPECT_EQ(name(Dtype::f32), "F32");
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
    EXPECT_EQ(dtype_from_name(name(dtype)), dtype);
  for (const char* unknown : {"", "bf16", "Q8_0", "INT4", "F64", "F8_E4M3", "I64"})
    EXPECT_FALSE(dtype_from_name(unknown)) << unknown;
}

// The definition of binary16, in double: sign · 2^(e−15) · (1 + m/1024), or sign · 2^−14 · m/1024 for e = 0.
TEST(Dtype, EveryHalfFollowsTheDefinition) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = bits % 1024 / 1024.0, sign = bits & 0x8000 ? -1 : 1;
    const float got = f16_to_float(static_cast<std::uint16_t>(bits));
    if (exponent == 31) {
      if (fraction != 0) {
        EXPECT_TRUE(std::isnan(got)) << bits;
      } else {
        EXPECT_EQ(got, sign * std::numeric_limits<double>::infinity()) << bits;
      }
    } else {
      EXPECT_EQ(got,
                sign * (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15)))
          << bits;
      EXPECT_EQ(std::signbit(got), sign < 0) << bits;
    }
  }
}

TEST(Dtype, EveryHalfRoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value)))) << bits;
    } else {
      EXPECT_EQ(float_to_f16(value), bits);
    }
  }
}

// Between each two neighbours: just below the middle down, just above it up, the middle to the even one.
TEST(Dtype, HalvesRoundToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = f16_to_float(static_cast<std::uint16_t>(bits)),
                high = f16_to_float(static_cast<std::uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;  // exact in fp32
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint32_t s = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(float_to_f16(sign * std::nextafter(middle, low)), s | bits);
      ASSERT_EQ(float_to_f16(sign * std::nextafter(middle, high)), s | (bits + 1));
      ASSERT_EQ(float_to_f16(sign * middle), s | (bits + (bits & 1)));
    }
  }
  EXPECT_EQ(float_to_f16(65519.996F), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520), 0x7C00);
  EXPECT_EQ(float_to_f16(-1e30F), 0xFC00);
  EXPECT_EQ(float_to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
}

TEST(Dtype, EveryFiniteBf16RoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isfinite(value)) {
      EXPECT_EQ(float_to_bf16(value), bits);
    }
  }
}

TEST(Dtype, Bf16RoundsToNearestTiesToEven) {
  const auto round = [](std::uint32_t bits) { return float_to_bf16(std::bit_cast<float>(bits)); };
  EXPECT_EQ(round(0x3F807FFF), 0x3F80);
  EXPECT_EQ(round(0x3F808000), 0x3F80);  // tie, down to even
  EXPECT_EQ(round(0x3F808001), 0x3F81);
  EXPECT_EQ(round(0x3F818000), 0x3F82);  // tie, up to even
  EXPECT_EQ(round(0xBF818000), 0xBF82);
  EXPECT_EQ(round(0x3FFFFFFF), 0x4000);  // carries into the exponent
}

/// The binary16 of a multiple of 1/64 below 2, by search over all of them.
std::uint16_t half_of(float value) {
  static const std::map<float, std::uint16_t> halves = [] {
    std::map<float, std::uint16_t> map;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float half = f16_to_float(static_cast<std::uint16_t>(bits));
      if (std::isfinite(half)) map.emplace(half, static_cast<std::uint16_t>(bits));
    }
    return map;
  }();
  return halves.at(value);
}

// Tensors may begin at any byte of a file: every dtype at every misalignment, at lengths around a vector's.
TEST(Dtype, DecodesUnalignedDataOfAnyLength) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (std::size_t shift = 0; shift < 4; ++shift) {
      for (const std::size_t count : {0UL, 1UL, 2UL, 7UL, 8UL, 9UL, 31UL, 33UL, 1024UL}) {
        std::vector<std::byte> bytes(shift + count * block_bytes(dtype));
        std::vector<float> want(count), got(count, NAN);
        for (std::size_t i = 0; i < count; ++i) {
          want[i] = static_cast<float>(i % 2 == 0 ? 1.0 : -1.0) * static_cast<float>(i % 128) / 64.0F;
          std::byte* const to = bytes.data() + shift + i * block_bytes(dtype);
          if (dtype == Dtype::f32) {
            std::memcpy(to, &want[i], 4);
          } else if (dtype == Dtype::bf16) {
            const std::uint16_t bits = float_to_bf16(want[i]);
            std::memcpy(to, &bits, 2);
          } else {
            const std::uint16_t bits = half_of(want[i]);
            std::memcpy(to, &bits, 2);
          }
        }
        decode(dtype, bytes.data() + shift, got);
        EXPECT_EQ(got, want) << name(dtype) << " shifted by " << shift << ", " << count << " elements";
      }
    }
  }
}

}  // namespace
}  // namespace fs::model

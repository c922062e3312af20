#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "cpu/team.h"
#include "model/dtype.h"

/// What the tests of the CPU backend's kernels share.
namespace fs::cpu {

using model::Dtype;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr std::size_t kTokens[] = {1, 2, 5, 17, 64, 129};

inline std::vector<float> random_floats(std::size_t n, std::uint32_t seed, float spread = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

/// An output of a kernel: NaN before it is written, and surrounded by values that must stay.
class Guarded {
 public:
  explicit Guarded(std::size_t n) : all_(n + 2 * zone, kNan) {
    for (std::size_t i = 0; i < zone; ++i) all_[i] = all_[zone + n + i] = mark;
  }
  explicit Guarded(const std::vector<float>& content) : Guarded(content.size()) {
    std::copy(content.begin(), content.end(), all_.begin() + zone);
  }
  std::span<float> span() { return std::span(all_).subspan(zone, all_.size() - 2 * zone); }
  float* data() { return span().data(); }
  bool zones_intact() const {
    for (std::size_t i = 0; i < zone; ++i) {
      if (all_[i] != mark || all_[all_.size() - 1 - i] != mark) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t zone = 64;
  static constexpr float mark = -12345.5F;
  std::vector<float> all_;
};

/// Kernels are held to a tenth of the design's tolerance: NaN, wrong values and writes outside fail.
inline void expect_close(Guarded& got, std::span<const float> want, const std::string& what) {
  EXPECT_TRUE(got.zones_intact()) << what << ": wrote outside its output";
  ASSERT_EQ(got.span().size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(std::abs(got.span()[i] - want[i]) <= 1e-5 + 1e-5 * std::abs(want[i]))
        << what << " element " << i << ": " << got.span()[i] << ", expected " << want[i];
  }
}
class EveryIsa : public ::testing::TestWithParam<const Kernels*> {
 protected:
  Team team(std::size_t threads = 2, Activations activations = Activations::f32) const {
    return Team(threads, *GetParam(), activations);
  }
  const Kernels& kernels() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Cpu, EveryIsa, ::testing::ValuesIn(available_kernels()),
                         [](const auto& isa) { return std::string(isa.param->name); });

}  // namespace fs::cpu

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "cpu_checks.h"
#include "reference/ops.h"

namespace fs::cpu {
namespace {

TEST(Isa, SaysWhichKernelsThisProcessorCannotRun) {
#if defined(__x86_64__)
  std::string missing;
  for (const Kernels* kernels : {&avx2_kernels, &avx512_kernels, &avx512bf16_kernels}) {
    const auto here = available_kernels();
    if (std::find(here.begin(), here.end(), kernels) == here.end())
      missing += std::string(" ") + kernels->name;
  }
  if (!missing.empty()) GTEST_SKIP() << "this processor cannot run the kernels of" << missing;
#endif
}

TEST(Isa, NamesWhatItHas) {
  EXPECT_EQ(std::string(choose_kernels("portable").name), "portable");
  EXPECT_EQ(&choose_kernels("auto"), available_kernels().front());
  try {
    choose_kernels("avx9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("avx9"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos) << error.what();
  }
}

TEST_P(EveryIsa, RmsNormMatchesTheReference) {
  for (const std::size_t n : {1U, 2U, 3U, 20U, 33U, 72U, 128U, 151U, 1024U, 2048U, 3072U}) {
    for (const float spread : {1e-4F, 1.0F, 300.0F}) {
      const auto x = random_floats(n, 1, spread), weight = random_floats(n, 2);
      std::vector<float> want(n);
      reference::rms_norm(x, weight, 1e-6, want);
      Guarded out(n), in_place(x);
      kernels().rms_norm(x.data(), weight.data(), n, 1e-6, out.data());
      kernels().rms_norm(in_place.data(), weight.data(), n, 1e-6, in_place.data());
      expect_close(out, want, fmt::format("n {}", n));
      expect_close(in_place, want, fmt::format("in place, n {}", n));
    }
  }
}

TEST_P(EveryIsa, RopeMatchesTheReference) {
  for (const std::size_t dim : {2U, 6U, 20U, 64U, 128U}) {
    const auto x = random_floats(dim, 1);
    std::vector<float> want = x, cosines, sines;
    reference::rope(want, 1, dim, 40'000, 1e6);
    for (std::size_t i = 0; i < dim / 2; ++i) {
      const double angle = 40'000 * std::pow(1e6, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
    Guarded out(x);
    kernels().rope(out.data(), cosines.data(), sines.data(), dim / 2);
    expect_close(out, want, fmt::format("dim {}", dim));
  }
}

double ulps(float got, double want) {
  const auto nearest = static_cast<float>(want);
  return std::abs(got - want) / (std::nextafter(nearest, kInf) - nearest);
}

TEST_P(EveryIsa, ExpErrsByTwoUlpAtMost) {
  double worst = 0;
  std::vector<float> x, scores;
  for (float value = -86.9F; value <= 0; value += 0.00137F) x.push_back(value);
  x.push_back(0);  // the peak
  scores = x;
  float peak = -kInf, total = 0;
  EXPECT_EQ(kernels().softmax_step(scores.data(), scores.size(), &peak, &total), 0);
  EXPECT_EQ(peak, 0);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, ulps(scores[i], std::exp(double{x[i]})));
    sum += std::exp(double{x[i]});
  }
  EXPECT_LE(worst, 2);
  EXPECT_NEAR(total / sum, 1, 1e-6);
  std::cout << kernels().name << ": exp errs by " << worst << " ulp at most on " << x.size() << " values\n";
}

TEST_P(EveryIsa, SoftmaxStepsJoin) {
  for (const std::size_t n : {1U, 2U, 7U, 8U, 9U, 20U, 33U, 128U}) {
    const auto scores = random_floats(2 * n, 5, 8);
    Guarded first(std::vector<float>(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(n)));
    Guarded second(std::vector<float>(scores.begin() + static_cast<std::ptrdiff_t>(n), scores.end()));
    float peak = -kInf, total = 0;
    kernels().softmax_step(first.data(), n, &peak, &total);
    const float factor = kernels().softmax_step(second.data(), n, &peak, &total);
    EXPECT_EQ(kernels().softmax_step(nullptr, 0, &peak, &total), 1) << "no scores, nothing changes";
    const double top = *std::max_element(scores.begin(), scores.end());
    EXPECT_EQ(peak, static_cast<float>(top));
    double sum = 0;
    for (const float score : scores) sum += std::exp(score - top);
    EXPECT_NEAR(total / sum, 1, 1e-6);
    std::vector<float> want;
    for (std::size_t i = n; i < 2 * n; ++i) want.push_back(static_cast<float>(std::exp(scores[i] - top)));
    expect_close(second, want, "later weights");
    for (float& value : first.span()) value *= factor;
    want.clear();
    for (std::size_t i = 0; i < n; ++i) want.push_back(static_cast<float>(std::exp(scores[i] - top)));
    expect_close(first, want, "earlier weights times the factor");
  }
}

TEST_P(EveryIsa, ExpKeepsWhatIsNotFiniteVisible) {
  std::vector<float> scores = {1, 2, kNan, 3, -kInf, 4, 5, 6, 7, kNan};
  float peak = -kInf, total = 0;
  kernels().softmax_step(scores.data(), scores.size(), &peak, &total);
  EXPECT_TRUE(std::isnan(scores[2]) && std::isnan(scores[9]) && std::isnan(total));
  EXPECT_EQ(scores[4], 0);
  float gate[] = {kNan, 1}, up[] = {1, kNan};
  kernels().swiglu(gate, up, 2, gate);
  EXPECT_TRUE(std::isnan(gate[0]) && std::isnan(gate[1]));
}

TEST_P(EveryIsa, SwigluMatchesTheReferenceFarOut) {
  std::vector<float> gate, up;
  for (float x = -200; x <= 200; x += 0.37F) {
    gate.push_back(x);
    up.push_back(0.75F);
  }
  Guarded got(gate.size());
  kernels().swiglu(gate.data(), up.data(), gate.size(), got.data());
  reference::swiglu(gate, up);
  expect_close(got, gate, "swiglu");
}

TEST_P(EveryIsa, AddAndScaleStayInside) {
  for (const std::size_t n : {1U, 3U, 8U, 20U, 33U, 151U}) {
    const auto x = random_floats(n, 1), delta = random_floats(n, 2);
    Guarded sum(x), scaled(x);
    kernels().add(sum.data(), delta.data(), n);
    kernels().scale(scaled.data(), 0.5F, n);
    std::vector<float> want = x, half = x;
    reference::add(want, delta);
    for (float& value : half) value *= 0.5F;
    expect_close(sum, want, "add");
    expect_close(scaled, half, "scale");
  }
}

}  // namespace
}  // namespace fs::cpu

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/attention.h"
#include "cpu/kv_cache.h"
#include "cpu_checks.h"
#include "reference/ops.h"

namespace fs::cpu {
namespace {

constexpr Dtype kCacheDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};

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
  kernels().swiglu(gate, up, 2);
  EXPECT_TRUE(std::isnan(gate[0]) && std::isnan(gate[1]));
}

TEST_P(EveryIsa, SwigluMatchesTheReferenceFarOut) {
  std::vector<float> gate, up;
  for (float x = -200; x <= 200; x += 0.37F) {
    gate.push_back(x);
    up.push_back(0.75F);
  }
  Guarded got(gate);
  kernels().swiglu(got.data(), up.data(), gate.size());
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

TEST_P(EveryIsa, CacheHoldsTheNearestValues) {
  model::Config config;
  config.n_layers = 1;
  config.n_kv_heads = 1;
  config.head_dim = 20;
  const auto random = random_floats(20'000, 1, 3);
  std::vector<float> x(random.begin(), random.end());
  for (const float scale : {1e-6F, 1e-4F, 1e3F}) {
    for (std::size_t i = 0; i < 5'000; ++i) x.push_back(random[i] * scale);
  }
  for (const float value : {0.0F, -0.0F, 1.0F + 0x1p-11F, 1.0F + 0x1p-8F, 1.0F + 0x1.8p-7F, 65519.9F,
                            65520.0F, -1e30F, kInf, -kInf, kNan, -kNan}) {
    x.push_back(value);
  }
  x.push_back(std::bit_cast<float>(0x7FFFFFFFU));  // NaNs that rounding would carry to zero
  x.push_back(std::bit_cast<float>(0xFFFFFFFFU));
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const KvCache cache(config, kernels(), dtype);
    Guarded got(x);
    cache.round(got.span());
    EXPECT_TRUE(got.zones_intact());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float held = got.span()[i];
      if (std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(held)) << i;
        continue;
      }
      const float want = dtype == Dtype::f16 ? model::f16_to_float(model::float_to_f16(x[i]))
                                             : model::bf16_to_float(model::float_to_bf16(x[i]));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(held), std::bit_cast<std::uint32_t>(want))
          << model::name(dtype) << " " << x[i];
    }
    for (const std::size_t n : {1U, 7U, 8U, 9U, 20U}) {  // writes no more than n
      std::vector<std::byte> out(n * 2 + 8, std::byte{0x5A});
      cache.kernels().store(x.data(), n, out.data());
      for (std::size_t i = n * 2; i < out.size(); ++i) EXPECT_EQ(out[i], std::byte{0x5A}) << n;
    }
  }
}

TEST_P(EveryIsa, HalfTheFormatIsHalfTheCache) {
  model::Config config;
  config.n_layers = 3;
  config.n_kv_heads = 2;
  config.head_dim = 128;
  std::vector<std::size_t> bytes;
  for (const Dtype dtype : kCacheDtypes) {
    KvCache cache(config, kernels(), dtype);
    EXPECT_EQ(cache.bytes(), 0U);
    cache.grow(300);
    bytes.push_back(cache.bytes());
  }
  EXPECT_EQ(bytes[0], 3U * 3 * KvCache::block * 2 * 2 * 128 * sizeof(float));
  EXPECT_EQ(bytes[1] * 2, bytes[0]);
  EXPECT_EQ(bytes[2] * 2, bytes[0]);
}

TEST_P(EveryIsa, AttentionMatchesTheReference) {
  ThreadPool pool(2);
  for (const std::size_t threads : {1U, 3U}) {
    Team team = this->team(threads);
    for (const auto& [group, dim] : {std::pair<std::size_t, std::size_t>{1, 20}, {2, 128}, {3, 2}, {8, 20}}) {
      for (const std::size_t first : {0U, 3U, 126U, 517U}) {
        for (const std::size_t tokens : kTokens) {
          model::Config config;
          config.n_layers = 2;
          config.n_kv_heads = 2;
          config.n_q_heads = 2 * group;
          config.head_dim = dim;
          const std::size_t positions = first + tokens;
          const auto q = random_floats(tokens * config.q_width(), 1);
          const auto keys = random_floats(positions * config.kv_width(), 2),
                     values = random_floats(positions * config.kv_width(), 3);
          for (const Dtype dtype : kCacheDtypes) {
            KvCache cache(config, kernels(), dtype);
            cache.grow(positions);
            cache.store(1, 0, std::span(keys).first(first * config.kv_width()),
                        std::span(values).first(first * config.kv_width()));
            cache.store(1, first, std::span(keys).subspan(first * config.kv_width()),
                        std::span(values).subspan(first * config.kv_width()));
            auto held_keys = keys, held_values = values;
            cache.round(held_keys);
            cache.round(held_values);
            std::vector<float> want(q.size());
            reference::attention(pool, config, q, held_keys, held_values, first, want);
            Guarded got(q.size());
            const Segment all{cache, first, 0, tokens};
            attention(team, config, q, {&all, 1}, 1, got.span());
            expect_close(got, want,
                         fmt::format("{} group {} dim {} first {} tokens {}", model::name(dtype), group, dim,
                                     first, tokens));
          }
        }
      }
    }
  }
}

TEST_P(EveryIsa, AttentionSeesNoLaterPositionEvenIfItIsNotFinite) {
  Team team = this->team();
  model::Config config;
  config.n_layers = 1;
  config.n_kv_heads = 1;
  config.n_q_heads = 2;
  config.head_dim = 20;
  constexpr std::size_t tokens = 150, bad = 70;
  const auto q = random_floats(tokens * 40, 1);
  auto keys = random_floats(tokens * 20, 2), values = random_floats(tokens * 20, 3);
  keys[bad * 20 + 3] = kNan;
  values[bad * 20 + 5] = kInf;
  for (const Dtype dtype : kCacheDtypes) {
    KvCache cache(config, kernels(), dtype);
    cache.grow(tokens);
    cache.store(0, 0, keys, values);
    std::vector<float> out(q.size());
    const Segment all{cache, 0, 0, tokens};
    attention(team, config, q, {&all, 1}, 0, out);
    for (std::size_t t = 0; t < tokens; ++t) {
      EXPECT_EQ(std::isfinite(out[t * 40 + 5]), t < bad) << t;
      EXPECT_EQ(std::isfinite(out[t * 40 + 25]), t < bad) << t;
    }
  }
}

TEST_P(EveryIsa, AttentionSurvivesScoresThatOverflowExp) {
  Team team = this->team();
  ThreadPool pool(1);
  model::Config config;
  config.n_layers = 1;
  config.n_kv_heads = 1;
  config.n_q_heads = 1;
  config.head_dim = 20;
  for (const std::size_t tokens : {1U, 129U}) {
    const auto q = random_floats(tokens * 20, 1, 60), keys = random_floats(tokens * 20, 2, 60),
               values = random_floats(tokens * 20, 3);
    KvCache cache(config, kernels(), Dtype::f32);
    cache.grow(tokens);
    cache.store(0, 0, keys, values);
    std::vector<float> want(q.size());
    reference::attention(pool, config, q, keys, values, 0, want);
    Guarded got(q.size());
    const Segment all{cache, 0, 0, tokens};
    attention(team, config, q, {&all, 1}, 0, got.span());
    EXPECT_TRUE(got.zones_intact());
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got.span()[i], want[i], 2e-3) << i;
  }
}

}  // namespace
}  // namespace fs::cpu

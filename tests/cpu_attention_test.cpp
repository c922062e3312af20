#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/activations.h"
#include "cpu/attention.h"
#include "cpu/kv_cache.h"
#include "cpu_checks.h"
#include "reference/ops.h"

namespace fs::cpu {
namespace {

constexpr Dtype kCacheDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};

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

model::Config config_of(std::size_t group, std::size_t dim) {
  model::Config config;
  config.n_layers = 2;
  config.n_kv_heads = 2;
  config.n_q_heads = 2 * group;
  config.head_dim = dim;
  return config;
}

TEST_P(EveryIsa, AttentionMatchesTheReference) {
  ThreadPool pool(2);
  for (const std::size_t threads : {1U, 3U}) {
    Team team = this->team(threads);
    for (const auto& [group, dim] : {std::pair<std::size_t, std::size_t>{1, 20}, {2, 128}, {3, 2}, {8, 20}}) {
      for (const std::size_t first : {0U, 3U, 126U, 517U}) {
        for (const std::size_t tokens : kTokens) {
          const model::Config config = config_of(group, dim);
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

/// Rounded as it is said: q · scale, keys, values and softmax weights to bf16, none of them off by more than
/// 2^-8. What keys and queries become is computed; of the others the error is bounded.
TEST_P(EveryIsa, RoundedAttentionErrsByItsRoundingAndNoMore) {
  constexpr float half_ulp = 0x1p-8F;
  ThreadPool pool(2);
  for (const auto& [group, dim] : {std::pair<std::size_t, std::size_t>{1, 20}, {2, 128}, {3, 2}, {30, 20}}) {
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
    for (const std::size_t first : {0U, 3U, 126U, 517U}) {
      for (const std::size_t tokens : kTokens) {
        const model::Config config = config_of(group, dim);
        const std::size_t positions = first + tokens;
        const auto q = random_floats(tokens * config.q_width(), 1, 3);
        const auto keys = random_floats(positions * config.kv_width(), 2),
                   values = random_floats(positions * config.kv_width(), 3);
        for (const Dtype dtype : kCacheDtypes) {
          const std::string what = fmt::format("{} group {} dim {} first {} tokens {}", model::name(dtype),
                                               group, dim, first, tokens);
          KvCache cache(config, kernels(), dtype);
          cache.grow(positions);
          cache.store(1, 0, keys, values);
          auto held_keys = keys, held_values = values;
          cache.round(held_keys);
          cache.round(held_values);
          std::vector<float> exact(q.size()), want(q.size()), magnitudes(q.size());
          reference::attention(pool, config, q, held_keys, held_values, first, exact);

          Team team = this->team(2, Activations::bf16);
          Guarded got(q.size());
          const Segment all{cache, first, 0, tokens};
          attention(team, config, q, {&all, 1}, 1, got.span());
          if (tokens <= 16 || kernels().attention_bf16 == nullptr) {
            expect_close(got, exact, what);
            continue;
          }
          auto rounded_q = q, absolute = held_values;
          for (float& value : rounded_q) value *= scale;
          round_bf16(rounded_q.data(), rounded_q.size(), rounded_q.data());
          for (float& value : rounded_q) value /= scale;
          round_bf16(held_keys.data(), held_keys.size(), held_keys.data());
          for (float& value : absolute) value = std::abs(value);
          reference::attention(pool, config, rounded_q, held_keys, held_values, first, want);
          reference::attention(pool, config, rounded_q, held_keys, absolute, first, magnitudes);
          EXPECT_TRUE(got.zones_intact()) << what;
          double worst = 0, from_exact = 0;
          for (std::size_t i = 0; i < want.size(); ++i) {
            const float bound = 2.1F * half_ulp * magnitudes[i] + 1e-5F;
            const float value = got.span()[i];
            ASSERT_FALSE(std::isnan(value)) << what;
            worst = std::max(worst, double{std::abs(value - want[i]) / bound});
            from_exact = std::max(from_exact, double{std::abs(value - exact[i])});
          }
          EXPECT_LE(worst, 1) << what;
          EXPECT_GT(from_exact, 1e-4) << what << ": nothing was rounded";
        }
      }
    }
  }
}

TEST_P(EveryIsa, AttentionSeesNoLaterPositionEvenIfItIsNotFinite) {
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
  for (const Activations act : {Activations::f32, Activations::bf16}) {
    Team team = this->team(2, act);
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

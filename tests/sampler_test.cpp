#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace fs::engine {
namespace {

using Logits = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Logits random_logits(std::size_t n, std::uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  Logits logits(n);
  for (float& value : logits) value = normal(random);
  return logits;
}

/// Hugging Face's processors as they are written: masks and a fresh softmax at every stage, top-p from the
/// unlikely end. Returns a probability for every id. [n_ids]
std::vector<double> by_masks(const Logits& logits, const std::vector<TokenId>& history,
                             const SamplerOptions& o, std::size_t n_ids) {
  std::vector<double> score(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(n_ids));
  for (const TokenId id : history) {
    if (id >= n_ids) continue;
    const float x = logits[id], r = o.repetition_penalty;
    score[id] = (x < 0 ? x * r : x / r) - o.presence_penalty;  // in fp32
  }
  for (double& x : score) x /= static_cast<double>(o.temperature);
  const auto softmax = [&] {
    const double top = *std::max_element(score.begin(), score.end());
    std::vector<double> p(n_ids);
    std::transform(score.begin(), score.end(), p.begin(), [&](double x) { return std::exp(x - top); });
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= sum;
    return p;
  };
  if (o.top_k > 0) {
    std::vector<double> sorted = score;
    std::sort(sorted.rbegin(), sorted.rend());
    const double kth = sorted[std::min(o.top_k, n_ids) - 1];
    for (double& x : score) x = x < kth ? -HUGE_VAL : x;
  }
  if (o.top_p < 1) {
    const std::vector<double> p = softmax();
    std::vector<std::size_t> order(n_ids);
    std::iota(order.rbegin(), order.rend(), 0);  // among equals the highest id goes first
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return score[a] < score[b]; });
    double cumulative = 0;
    for (std::size_t i = 0; i + 1 < n_ids; ++i) {
      cumulative += p[order[i]];
      if (cumulative <= 1 - static_cast<double>(o.top_p)) score[order[i]] = -HUGE_VAL;
    }
  }
  if (o.min_p > 0) {
    const std::vector<double> p = softmax();
    const double top = *std::max_element(p.begin(), p.end());
    for (std::size_t i = 0; i < n_ids; ++i) {
      if (p[i] < static_cast<double>(o.min_p) * top) score[i] = -HUGE_VAL;
    }
  }
  return softmax();
}

void expect_same(const Logits& logits, const std::vector<TokenId>& history, const SamplerOptions& options,
                 std::size_t n_ids) {
  const std::vector<double> want = by_masks(logits, history, options, n_ids);
  std::vector<double> got(n_ids);
  const auto candidates = Sampler(options, n_ids).candidates(logits, history);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    ASSERT_LT(candidates[i].id, n_ids);
    ASSERT_EQ(got[candidates[i].id], 0.0) << "id " << candidates[i].id << " twice";
    got[candidates[i].id] = candidates[i].probability;
    if (i == 0) continue;
    const auto& a = candidates[i - 1];
    const auto& b = candidates[i];
    ASSERT_TRUE(a.probability > b.probability || (a.probability == b.probability && a.id < b.id))
        << "at rank " << i;
  }
  EXPECT_EQ(static_cast<std::size_t>(std::count_if(want.begin(), want.end(), [](double p) { return p > 0; })),
            candidates.size());
  for (std::size_t id = 0; id < n_ids; ++id)
    ASSERT_NEAR(got[id], want[id], 1e-12 + 1e-9 * want[id]) << "id " << id;
}

SamplerOptions sampling(float temperature = 1) {
  SamplerOptions options;
  options.temperature = temperature;
  return options;
}

std::vector<TokenId> ids_of(const std::vector<Candidate>& candidates) {
  std::vector<TokenId> ids;
  for (const auto& c : candidates) ids.push_back(c.id);
  return ids;
}

TEST(Greedy, TakesTheBestAndTheLowestIdOfEquals) {
  const Sampler sampler({}, 6);
  const Logits logits{-1, 4, 2, 4, 4, 0};
  EXPECT_EQ(sampler.pick(logits, {}), 1U);
  const auto candidates = sampler.candidates(logits, {});
  ASSERT_EQ(candidates.size(), 1U);
  EXPECT_EQ(candidates[0].id, 1U);
  EXPECT_EQ(candidates[0].probability, 1.0);
  EXPECT_EQ(sampler.pick(Logits(6, -2.5F), {}), 0U);
}

TEST(Greedy, AppliesPenaltiesFirst) {
  SamplerOptions options;
  options.repetition_penalty = 2;
  const std::vector<TokenId> history{1, 1, 3};
  EXPECT_EQ(Sampler(options, 4).pick(Logits{1, 3, 2, -5}, history), 2U);
  options = {};
  options.presence_penalty = 1.5F;
  EXPECT_EQ(Sampler(options, 4).pick(Logits{1, 3, 2, -5}, history), 2U);
}

TEST(Penalties, DivideOrMultiplyAndSubtractOnceForEachIdSeen) {
  SamplerOptions options = sampling();
  options.repetition_penalty = 2;
  options.presence_penalty = 0.5F;
  const std::vector<TokenId> history{0, 0, 0,
                                     1, 9, 4'000'000'000U};  // the last two are no ids of this tokenizer
  const auto candidates = Sampler(options, 3).candidates(Logits{3, -1, 0.25F}, history);
  // 3/2 − ½ = 1, −1·2 − ½ = −2.5, 0.25
  const double sum = std::exp(1) + std::exp(-2.5) + std::exp(0.25);
  ASSERT_EQ(ids_of(candidates), (std::vector<TokenId>{0, 2, 1}));
  EXPECT_NEAR(candidates[0].probability, std::exp(1) / sum, 1e-12);
  EXPECT_NEAR(candidates[1].probability, std::exp(0.25) / sum, 1e-12);
  EXPECT_NEAR(candidates[2].probability, std::exp(-2.5) / sum, 1e-12);
}

TEST(Filters, TopKKeepsTiesWithTheLastAsHuggingFaceDoes) {
  SamplerOptions options = sampling();
  options.top_k = 2;
  const Logits logits{1, 5, 3, 3, 0, 3};
  EXPECT_EQ(ids_of(Sampler(options, 6).candidates(logits, {})), (std::vector<TokenId>{1, 2, 3, 5}));
  options.top_k = 1;
  EXPECT_EQ(ids_of(Sampler(options, 6).candidates(logits, {})), (std::vector<TokenId>{1}));
  options.top_k = 100;
  EXPECT_EQ(Sampler(options, 6).candidates(logits, {}).size(), 6U);
}

TEST(Filters, TopPKeepsTheSmallestSetThatReachesP) {
  const Logits logits{std::log(0.5F), std::log(0.3F), std::log(0.15F), std::log(0.05F)};
  const auto kept = [&](float p) {
    SamplerOptions options = sampling();
    options.top_p = p;
    return Sampler(options, 4).candidates(logits, {}).size();
  };
  EXPECT_EQ(kept(0), 1U);
  EXPECT_EQ(kept(1e-30F), 1U);
  EXPECT_EQ(kept(0.49F), 1U);
  EXPECT_EQ(kept(0.51F), 2U);
  EXPECT_EQ(kept(0.79F), 2U);
  EXPECT_EQ(kept(0.81F), 3U);
  EXPECT_EQ(kept(0.96F), 4U);
  EXPECT_EQ(kept(1), 4U);
  SamplerOptions half = sampling();
  half.top_p = 0.5F;  // two of four equals reach it exactly
  EXPECT_EQ(ids_of(Sampler(half, 4).candidates(Logits{2, 2, 2, 2}, {})), (std::vector<TokenId>{0, 1}));
  SamplerOptions zero = sampling();
  zero.top_p = 0;
  EXPECT_EQ(ids_of(Sampler(zero, 3).candidates(Logits{1, 2, 2}, {})), (std::vector<TokenId>{1}));
}

TEST(Filters, MinPIsRelativeToTheBest) {
  SamplerOptions options = sampling();
  options.min_p = 0.29F;
  const Logits logits{std::log(0.1F), std::log(0.6F), std::log(0.2F), std::log(0.1F)};
  EXPECT_EQ(ids_of(Sampler(options, 4).candidates(logits, {})), (std::vector<TokenId>{1, 2}));
  options.min_p = 1;
  EXPECT_EQ(ids_of(Sampler(options, 4).candidates(Logits{2, 7, 7, 1}, {})), (std::vector<TokenId>{1, 2}));
}

TEST(Filters, AgreeWithMasksOnEveryCombination) {
  std::uint32_t seed = 1;
  for (const std::size_t n : {1U, 2U, 7U, 65U, 1000U}) {
    for (const float temperature : {0.25F, 1.0F, 2.5F}) {
      for (const std::size_t top_k : {0U, 1U, 5U, 64U, 300U}) {
        for (const float top_p : {0.0F, 0.3F, 0.9F, 0.999F, 1.0F}) {
          for (const float min_p : {0.0F, 0.05F, 1.0F}) {
            SamplerOptions options{temperature, top_k, top_p, min_p, 1, 0, 0};
            std::vector<TokenId> history;
            if (++seed % 2 == 0) {
              options.repetition_penalty = 1.3F;
              options.presence_penalty = -0.7F;
              for (std::uint32_t i = 0; i < 20; ++i) history.push_back(i * seed % 1200);
            }
            Logits logits = random_logits(n, seed);
            if (seed % 3 == 0) {  // many ties
              for (float& x : logits) x = std::round(x);
            }
            SCOPED_TRACE(fmt::format("n={} temp={} k={} p={} min_p={} seed={}", n, temperature, top_k, top_p,
                                     min_p, seed));
            ASSERT_NO_FATAL_FAILURE(expect_same(logits, history, options, n));
          }
        }
      }
    }
  }
}

TEST(Filters, AgreeWithMasksAtTheWidthOfQwen3) {
  const std::size_t n_ids = 151669;
  const Logits logits = random_logits(151936, 7);
  expect_same(logits, {3, 5, 151900}, {0.6F, 20, 0.95F, 0, 1.1F, 0, 0}, n_ids);
  expect_same(logits, {}, {0.7F, 0, 0.8F, 0, 1, 0, 0}, n_ids);
  expect_same(logits, {}, {1.5F, 0, 1, 0, 1, 0, 0}, n_ids);
  expect_same(logits, {}, {1, 100000, 1, 0.001F, 1, 0, 0}, n_ids);
}

TEST(Candidates, NeverIncludePaddedIds) {
  Logits logits(10, 0.0F);
  logits[8] = 100;
  logits[9] = kNan;  // beyond the tokenizer: not even looked at
  for (const float temperature : {0.0F, 1.0F}) {
    const Sampler sampler(sampling(temperature), 8);
    for (const auto& c : sampler.candidates(logits, {})) EXPECT_LT(c.id, 8U);
    EXPECT_LT(sampler.pick(logits, {}), 8U);
  }
  EXPECT_EQ(Sampler({}, 9).pick(logits, {}), 8U);
}

TEST(Candidates, SurviveExtremeLogitsAndTemperatures) {
  const Logits extreme{3e38F, -3e38F, 3e38F, 0};
  for (const float temperature : {1e-45F, 1e-3F, 1.0F, 3e38F}) {
    const auto candidates = Sampler(sampling(temperature), 4).candidates(extreme, {});
    double sum = 0;
    for (const auto& c : candidates) sum += c.probability;
    EXPECT_NEAR(sum, 1, 1e-12) << temperature;
    EXPECT_EQ(candidates[0].id, 0U);
    EXPECT_GE(candidates[0].probability, 0.25);
  }
  SamplerOptions enormous = sampling();  // penalties that overflow fp32
  enormous.repetition_penalty = 3e38F;
  EXPECT_EQ(Sampler(enormous, 2).candidates(Logits{-3e38F, 1}, std::vector<TokenId>{0})[1].probability, 0.0);
  enormous.repetition_penalty = 1e-45F;
  EXPECT_EQ(Sampler(enormous, 2).candidates(Logits{3e38F, 1}, std::vector<TokenId>{0})[0].probability, 1.0);
  for (std::size_t position = 0; position < 200; ++position) {  // probability 0 is never drawn
    const std::vector<TokenId> history(position, 0);
    EXPECT_EQ(Sampler(sampling(1), 4).pick(extreme, history) % 2, 0U);
  }
}

// --- errors
// ----------------------------------------------------------------------------------------------------------

void expect_error(const std::function<void()>& body, ExitCode code, const std::vector<std::string>& parts) {
  try {
    body();
    ADD_FAILURE() << "no error; expected one naming " << parts.front();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const auto& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Options, OutOfRangeAreRefusedByName) {
  struct Case {
    const char* option;
    float SamplerOptions::*field;
    std::vector<float> bad, good;
  };
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<Case> cases{
      {"--temp", &SamplerOptions::temperature, {-tiny, -1, kInf, -kInf, kNan}, {0, tiny, 2, 1e30F}},
      {"--topp", &SamplerOptions::top_p, {-tiny, 1.0001F, kInf, -kInf, kNan}, {0, 0.5F, 1}},
      {"--minp", &SamplerOptions::min_p, {-tiny, 1.0001F, kInf, -kInf, kNan}, {0, 0.5F, 1}},
      {"--repeat-penalty",
       &SamplerOptions::repetition_penalty,
       {0, -1, kInf, -kInf, kNan},
       {tiny, 0.5F, 1, 3}},
      {"--presence-penalty",
       &SamplerOptions::presence_penalty,
       {-2.1F, 2.1F, kInf, -kInf, kNan},
       {-2, 0, 2}}};
  for (const auto& c : cases) {
    for (const float value : c.bad) {
      SamplerOptions options = sampling();
      options.*c.field = value;
      expect_error([&] { Sampler(options, 4); }, ExitCode::usage,
                   {std::string(c.option) + " is " + fmt::format("{}", value), "expected"});
    }
    for (const float value : c.good) {
      SamplerOptions options = sampling();
      options.*c.field = value;
      EXPECT_NO_THROW(Sampler(options, 4).pick(Logits{1, 2, 3, 4}, {})) << c.option << " " << value;
    }
  }
}

TEST(Logits, NotFiniteAreAnErrorThatNamesTheStep) {
  const std::vector<TokenId> history{1, 2, 3};
  for (const float value : {kNan, kInf, -kInf}) {
    for (const float temperature : {0.0F, 1.0F}) {
      const Logits logits{1, 2, value, 4};
      const Sampler sampler(sampling(temperature), 4);
      const std::vector<std::string> parts{"position 3", "token 2", fmt::format("{}", value)};
      expect_error([&] { sampler.pick(logits, history); }, ExitCode::failed, parts);
      expect_error([&] { sampler.candidates(logits, history); }, ExitCode::failed, parts);
    }
  }
}

TEST(Logits, MustCoverEveryId) {
  expect_error([] { Sampler({}, 5).pick(Logits{1, 2}, {}); }, ExitCode::failed, {"2 logits", "5 token ids"});
  expect_error([] { Sampler({}, 0); }, ExitCode::unusable, {"no ids"});
}

}  // namespace
}  // namespace fs::engine

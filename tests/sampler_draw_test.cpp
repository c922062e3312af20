// What the sampler draws: the random stream, single picks and frequencies. What it draws from is in
// sampler_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "engine/sampler.h"

namespace fs::engine {
namespace {

using Logits = std::vector<float>;

Logits random_logits(std::size_t n, std::uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  Logits logits(n);
  for (float& value : logits) value = normal(random);
  return logits;
}

SamplerOptions sampling(float temperature = 1) {
  SamplerOptions options;
  options.temperature = temperature;
  return options;
}

TEST(Draw, MatchesValuesComputedIndependently) {  // from the formula, in Python's exact integers
  constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(draw(0, 0), 0x1.c4415072f63b9p-1);
  EXPECT_EQ(draw(0, 1), 0x1.b9e279aa86e58p-2);
  EXPECT_EQ(draw(0, 2), 0x1.b117462002500p-6);
  EXPECT_EQ(draw(42, 0), 0x1.7bae644c5fd6dp-1);
  EXPECT_EQ(draw(42, 40959), 0x1.78b320feb5e90p-5);
  EXPECT_EQ(draw(max, 12345), 0x1.9d750b2c5d168p-3);
  EXPECT_EQ(draw(std::uint64_t{1} << 63, 1), 0x1.88df4c714c612p-1);
  // splitmix64's published stream of seed 1234567: 6457827717110365317, 3203168211198807973
  EXPECT_EQ(draw(1234567, 0), static_cast<double>(6457827717110365317U >> 11) * 0x1p-53);
  EXPECT_EQ(draw(1234567, 1), static_cast<double>(3203168211198807973U >> 11) * 0x1p-53);
}

TEST(Pick, DrawsFromItsCandidates) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SamplerOptions options{0.9F, seed % 3 * 20, seed % 2 == 0 ? 1 : 0.9F, seed % 5 == 0 ? 0.01F : 0, 1,
                           0,    seed};
    const Logits logits = random_logits(500, seed, seed % 7 == 0 ? 0.1F : 2);
    const std::vector<TokenId> history(seed, 1);
    const Sampler sampler(options, 500);
    const double u = draw(seed, history.size());
    double cumulative = 0;
    TokenId want = 0;
    for (const auto& c : sampler.candidates(logits, history)) {
      cumulative += c.probability;
      want = c.id;
      if (cumulative > u) break;
    }
    EXPECT_EQ(sampler.pick(logits, history), want) << "seed " << seed;
    EXPECT_EQ(sampler.pick(logits, history), want) << "the same arguments give the same token";
  }
}

/// Pearson's statistic of `counts` against `expected` probabilities.
double chi_square(const std::vector<std::size_t>& counts, const std::vector<double>& expected) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  double statistic = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double want = total * expected[i], off = static_cast<double>(counts[i]) - want;
    statistic += off * off / want;
  }
  return statistic;
}

/// The value that chi-square with `degrees` of freedom exceeds once in 1000 (Wilson and Hilferty 1931).
double critical(std::size_t degrees) {
  const double k = static_cast<double>(degrees), a = 2 / (9 * k);
  return k * std::pow(1 - a + 3.0902 * std::sqrt(a), 3);
}

/// Picks 20,000 tokens over seeds and positions and counts them by rank among the candidates.
std::vector<std::size_t> frequencies(const Logits& logits, SamplerOptions options) {
  std::vector<std::size_t> counts(logits.size());
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    options.seed = seed;
    const Sampler sampler(options, logits.size());
    std::vector<TokenId> history;
    for (std::size_t position = 0; position < 1000; ++position) {
      ++counts[sampler.pick(logits, history)];
      history.push_back(0);
    }
  }
  return counts;
}

std::vector<double> probabilities(const Logits& logits, const SamplerOptions& options) {
  std::vector<double> result(logits.size());
  for (const auto& c : Sampler(options, logits.size()).candidates(logits, {})) result[c.id] = c.probability;
  return result;
}

const Logits kTwelve{0.1F, 1.5F, -0.4F, 2.0F, 0.9F, 0.0F, 1.1F, -1.0F, 0.7F, 1.9F, 0.2F, -0.2F};

TEST(Frequencies, PassAChiSquareTest) {
  for (const float temperature : {0.7F, 1.0F, 1.8F}) {
    const auto counts = frequencies(kTwelve, sampling(temperature));
    EXPECT_LT(chi_square(counts, probabilities(kTwelve, sampling(temperature))), critical(11)) << temperature;
  }
}

TEST(Frequencies, OfAWrongDistributionFailTheSameTest) {
  const auto counts = frequencies(kTwelve, sampling(1));
  EXPECT_GT(chi_square(counts, probabilities(kTwelve, sampling(0.93F))), critical(11));
  Logits shifted = kTwelve;
  shifted[3] += 0.1F;
  EXPECT_GT(chi_square(counts, probabilities(shifted, sampling(1))), critical(11));
}

TEST(Frequencies, OfConsecutiveDrawsAreIndependent) {
  std::vector<std::size_t> pairs(64);
  for (std::size_t position = 0; position < 40000; position += 2) {
    const auto bin = [&](std::size_t at) { return static_cast<std::size_t>(draw(9, at) * 8); };
    ++pairs[bin(position) * 8 + bin(position + 1)];
  }
  EXPECT_LT(chi_square(pairs, std::vector<double>(64, 1.0 / 64)), critical(63));
}

}  // namespace
}  // namespace fs::engine

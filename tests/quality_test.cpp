#include "engine/quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/sampler.h"

namespace fs::engine {
namespace {

TEST(Quality, PerplexityOfGuessingIsTheNumberOfChoices) {
  Perplexity perplexity;
  for (int i = 0; i < 5; ++i) perplexity.add(-std::log(7.0));
  EXPECT_EQ(perplexity.count(), 5U);
  EXPECT_NEAR(perplexity.value(), 7, 1e-12);
  Perplexity certain;
  certain.add(0);
  EXPECT_EQ(certain.value(), 1);
  certain.add(-std::log(4.0));  // the geometric mean of 1 and 4
  EXPECT_NEAR(certain.value(), 2, 1e-12);
}

TEST(Quality, DivergenceFromItselfIsZero) {
  const std::vector<float> logits = {0.1F, -3.7F, 12.25F, 1e4F, -1e4F, 9999.5F};
  Divergence d;
  d.add(3, logits, logits);
  EXPECT_EQ(d.mean(), 0);
  EXPECT_EQ(d.largest(), 0);
  EXPECT_EQ(d.largest_position(), 3U);
  EXPECT_EQ(d.agreeing(), 1U);
}

TEST(Quality, DivergenceIsWhatAHandComputes) {
  // P = (1/2, 1/2), Q = (3/4, 1/4): KL(P‖Q) = ½·log(2/3) + ½·log 2. The other way round it is another number.
  const std::vector<float> p = {1, 1}, q = {static_cast<float>(std::log(3.0)) + 5, 5};
  const double p_from_q = 0.5 * std::log(2.0 / 3) + 0.5 * std::log(2.0);
  const double q_from_p = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  Divergence d;
  d.add(0, p, q);
  EXPECT_NEAR(d.mean(), p_from_q, 1e-7);
  Divergence reverse;
  reverse.add(0, q, p);
  EXPECT_NEAR(reverse.mean(), q_from_p, 1e-7);
  EXPECT_GT(std::abs(p_from_q - q_from_p), 0.01);
  // A second position, without any divergence, halves the mean and leaves the largest.
  d.add(1, p, p);
  EXPECT_NEAR(d.mean(), p_from_q / 2, 1e-7);
  EXPECT_NEAR(d.largest(), p_from_q, 1e-7);
  EXPECT_EQ(d.largest_position(), 0U);
  EXPECT_EQ(d.count(), 2U);
}

TEST(Quality, TiesGoToTheLowestId) {
  const std::vector<float> tie = {2, 5, 5}, second = {2, 5, 4}, third = {2, 4, 5};
  Divergence d;
  d.add(0, tie, second);
  EXPECT_EQ(d.agreeing(), 1U);
  d.add(1, tie, third);
  EXPECT_EQ(d.agreeing(), 1U);
  d.add(2, third, tie);
  EXPECT_EQ(d.agreeing(), 1U);
  EXPECT_EQ(d.count(), 3U);
}

TEST(Quality, LargeLogitsDoNotOverflow) {
  const std::vector<float> p = {-3e38F, 3e38F}, q = {3e38F, -3e38F};
  EXPECT_EQ(log_sum_exp(p), 3e38F);
  Divergence d;
  d.add(0, p, q);
  EXPECT_TRUE(std::isfinite(d.mean()));
  EXPECT_GT(d.mean(), 5e38);
  EXPECT_EQ(d.agreeing(), 0U);
}

}  // namespace
}  // namespace fs::engine

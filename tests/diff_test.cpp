#include "engine/diff.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "faults.h"
#include "model/checkpoint.h"

namespace fs::engine {
namespace {

struct TinyOdd : ::testing::Test {
  TinyOdd() : checkpoint(model::Checkpoint::open(model::locate("synthetic:tiny-odd"))), pool(1) {
    weights = checkpoint.load(pool);
  }
  std::unique_ptr<Backend> reference() const {
    return make_backend({.name = "reference", .threads = 1}, checkpoint.config(), weights);
  }
  /// Every tap of a run of `tokens` on `b` against the reference, in the order of execution.
  std::vector<TapDiff> diff(const Backend& b, bool inject, std::size_t chunk = 64) const {
    const auto a = reference();
    Session session_a(*a, 64), session_b(b, 64);
    std::vector<TapDiff> taps;
    DiffObserver::Options options;
    options.wants = [](TapPoint, std::size_t) { return true; };
    options.keep = 3;
    options.inject = inject;
    options.report = [&](const TapDiff& tap) { taps.push_back(tap); };
    diff_forward(session_a, session_b, tokens, chunk, options);
    return taps;
  }
  model::Checkpoint checkpoint;
  ThreadPool pool;
  model::Weights weights;
  std::vector<TokenId> tokens = {1, 300, 77, 5, 5, 123, 340};
};

TEST_F(TinyOdd, equal_sides_agree_to_the_bit_at_every_tap) {
  const auto b = reference();
  for (const bool inject : {false, true}) {
    const auto taps = diff(*b, inject);
    ASSERT_EQ(taps.size(), 1 + 3 * 9 + 2);
    for (const TapDiff& tap : taps) {
      EXPECT_EQ(tap.max_abs, 0);
      EXPECT_EQ(tap.share(), 0);
      EXPECT_EQ(tap.relative_l2, 0);
      EXPECT_EQ(tap.cosine, 1);
      EXPECT_EQ(tap.worst.size(), 3);
    }
  }
}

TEST_F(TinyOdd, chunks_are_compared_where_they_stand) {
  const auto b = reference();
  const auto taps = diff(*b, false, 3);  // 3 + 3 + 1 tokens; only the last chunk has logits
  ASSERT_EQ(taps.size(), 3 * (1 + 3 * 9 + 1) + 1);
  EXPECT_EQ(taps[28].first_position + taps[28].rows, 3);
  EXPECT_EQ(taps.back().point, TapPoint::logits);
  EXPECT_EQ(taps.back().first_position, 6);
}

/// Every fault, at every layer it can stand in, with and without injection: the first tap beyond tolerance is
/// the operation that was broken, and with injection it is the only one.
TEST_F(TinyOdd, every_fault_is_named) {
  for (const auto& fault : faults::all()) {
    for (std::size_t layer = 0; layer < (per_layer(fault.point) ? 3 : 1); ++layer) {
      for (const bool inject : {false, true}) {
        SCOPED_TRACE(fmt::format("{} layer {} inject {}", fault.name, layer, inject));
        const auto b = faults::with_fault(reference(), weights, fault, layer);
        std::vector<TapDiff> beyond;
        for (const TapDiff& tap : diff(*b, inject)) {
          if (!tap.within()) beyond.push_back(tap);
        }
        ASSERT_FALSE(beyond.empty());
        EXPECT_EQ(tap_key(beyond[0].point, beyond[0].layer), tap_key(fault.point, layer));
        if (inject) {
          EXPECT_EQ(beyond.size(), 1);
        }
      }
    }
  }
}

TEST_F(TinyOdd, a_failing_side_stops_the_other_one) {
  const auto b = reference();
  const auto a = reference();
  DiffObserver::Options options;
  options.wants = [](TapPoint, std::size_t) { return true; };
  std::size_t taps = 0;
  options.report = [&](const TapDiff&) {
    if (++taps == 5) fail(ExitCode::interrupted, "stopped");
  };
  Session session_a(*a, 64), session_b(*b, 64);
  EXPECT_THROW(diff_forward(session_a, session_b, tokens, 64, options), Error);
  EXPECT_EQ(session_a.position(), 0);
  EXPECT_EQ(session_b.position(), 0);
}

Tap tap_of(std::vector<float>& values, std::size_t rows, std::size_t heads) {
  return {TapPoint::q, 3, 0, 10, rows, heads, values.size() / rows / heads, values};
}

TEST(Compare, gives_the_worst_elements_with_their_place) {
  std::vector<float> a = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, b = a;  // [2, 3, 2]
  b[7] += 0.5F;                                                           // row 1, head 0, channel 1
  b[10] -= 0.1F;                                                          // row 1, head 2, channel 0
  const TapDiff diff = compare(tap_of(a, 2, 3), tap_of(b, 2, 3), {.atol = 0.1, .rtol = 0}, 2);
  EXPECT_FLOAT_EQ(static_cast<float>(diff.max_abs), 0.5F);
  ASSERT_EQ(diff.worst.size(), 2);
  EXPECT_EQ(diff.worst[0].row, 1);
  EXPECT_EQ(diff.worst[0].head, 0);
  EXPECT_EQ(diff.worst[0].channel, 1);
  EXPECT_NEAR(diff.share(), 5, 1e-4);
  EXPECT_EQ(diff.worst[1].head, 2);
  EXPECT_EQ(diff.worst[1].channel, 0);
  EXPECT_NEAR(diff.relative_l2, std::sqrt(0.26 / 650), 1e-6);
  EXPECT_FALSE(diff.within());
  EXPECT_TRUE(compare(tap_of(a, 2, 3), tap_of(b, 2, 3), {.atol = 0.51, .rtol = 0}, 1).within());
}

TEST(Compare, what_is_not_finite_is_beyond_even_if_equal) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> a = {1, bad}, b = {1, bad}, fine = {1, 2};
    EXPECT_FALSE(compare(tap_of(a, 1, 1), tap_of(b, 1, 1), {}, 1).within());
    EXPECT_FALSE(compare(tap_of(fine, 1, 1), tap_of(b, 1, 1), {}, 1).within());
    const TapDiff diff = compare(tap_of(a, 1, 1), tap_of(fine, 1, 1), {}, 1);
    EXPECT_FALSE(diff.within());
    EXPECT_EQ(diff.not_finite_a, 1);
    EXPECT_EQ(diff.not_finite_b, 0);
    EXPECT_EQ(diff.worst[0].channel, 1);
  }
}

TEST(Compare, refuses_different_shapes) {
  std::vector<float> a(12), b(12);
  EXPECT_THROW(compare(tap_of(a, 2, 3), tap_of(b, 3, 2), {}, 1), Error);
}

}  // namespace
}  // namespace fs::engine

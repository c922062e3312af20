#include "engine/tap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/backend.h"
#include "engine/session.h"
#include "model/synthetic.h"
#include "synthetic_model.h"
#include "tap_log.h"

namespace fs::engine {
namespace {

using testing::some_tokens;
using testing::synthetic_weights;
using testing::TapLog;

constexpr TapPoint kPoints[] = {TapPoint::embed,      TapPoint::attn_norm,  TapPoint::q,
                                TapPoint::k,          TapPoint::v,          TapPoint::attn_out,
                                TapPoint::attn_resid, TapPoint::mlp_norm,   TapPoint::mlp_act,
                                TapPoint::block_out,  TapPoint::final_norm, TapPoint::logits};

TEST(TapPoints, HaveNamesAndKeys) {
  std::set<std::string_view> names;
  for (const TapPoint point : kPoints) {
    EXPECT_EQ(tap_point_from_name(name(point)), point);
    names.insert(name(point));
  }
  EXPECT_EQ(names.size(), tap_point_count);
  EXPECT_EQ(std::size(kPoints), tap_point_count);
  EXPECT_FALSE(tap_point_from_name("attn"));
  EXPECT_FALSE(tap_point_from_name(""));
  EXPECT_EQ(tap_key(TapPoint::embed, 0), "embed");
  EXPECT_EQ(tap_key(TapPoint::mlp_act, 3), "layers.3.mlp_act");
  EXPECT_EQ(tap_key(TapPoint::attn_norm, 0), "layers.0.attn_norm");
  EXPECT_EQ(tap_key(TapPoint::block_out, 27), "layers.27.block_out");
  EXPECT_EQ(tap_key(TapPoint::logits, 0), "logits");
  EXPECT_FALSE(per_layer(TapPoint::embed));
  EXPECT_TRUE(per_layer(TapPoint::attn_norm));
  EXPECT_TRUE(per_layer(TapPoint::block_out));
  EXPECT_FALSE(per_layer(TapPoint::final_norm));
}

class TapsOfEveryBackend : public ::testing::TestWithParam<std::string_view> {
 protected:
  const model::Config config = model::synthetic_config("tiny-odd");
  const std::unique_ptr<Backend> model =
      make_backend({.name = GetParam(), .threads = 2}, config, synthetic_weights(config));

  /// Runs tokens through a fresh session; returns the logits that follow the last one.
  std::vector<float> run(const std::vector<TokenId>& tokens, TapObserver* taps, std::size_t chunk = 64,
                         bool every_row = false) const {
    Session session(*model, tokens.size());
    ForwardOptions options;
    options.chunk = chunk;
    options.taps = taps;
    if (every_row) options.on_logits = [](std::size_t, std::span<const float>) {};
    const auto logits = session.forward(tokens, options);
    return {logits.begin(), logits.end()};
  }

  /// Heads and width of a point.
  std::pair<std::size_t, std::size_t> shape(TapPoint point) const {
    switch (point) {
      case TapPoint::q:
      case TapPoint::attn_out:
        return {6, 20};
      case TapPoint::k:
      case TapPoint::v:
        return {2, 20};
      case TapPoint::mlp_act:
        return {1, 151};
      case TapPoint::logits:
        return {1, 347};
      default:
        return {1, 72};
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, TapsOfEveryBackend, ::testing::Values("reference", "cpu"));

TEST_P(TapsOfEveryBackend, ArriveOnceEachInOrderWithTheirShapes) {
  std::vector<std::pair<TapPoint, std::size_t>> order{{TapPoint::embed, 0}};
  for (std::size_t layer = 0; layer < config.n_layers; ++layer) {
    for (const TapPoint point : kPoints) {
      if (per_layer(point)) order.emplace_back(point, layer);
    }
  }
  order.emplace_back(TapPoint::final_norm, 0);
  order.emplace_back(TapPoint::logits, 0);

  for (const bool every_row : {false, true}) {
    for (const std::size_t count : {1U, 2U, 5U, 17U, 64U, 129U}) {
      for (const std::size_t chunk : {1U, 7U, 64U, 200U}) {
        TapLog log;
        run(some_tokens(count, config.vocab_size), &log, chunk, every_row);
        auto entry = log.entries.begin();
        for (std::size_t start = 0, pass = 0; start < count; start += chunk, ++pass) {
          const std::size_t rows = std::min(chunk, count - start);
          for (const auto& [point, layer] : order) {
            std::size_t want_rows = rows;
            if (point == TapPoint::logits && !every_row) {
              if (start + rows < count) continue;  // the head runs on the last row alone
              want_rows = 1;
            }
            ASSERT_NE(entry, log.entries.end());
            ASSERT_EQ(entry->key, tap_key(point, layer));
            const Tap& tap = entry->tap;
            ASSERT_EQ(tap.point, point) << entry->key;
            ASSERT_EQ(tap.layer, layer) << entry->key;
            ASSERT_EQ(tap.run, pass) << entry->key;
            ASSERT_EQ(tap.rows, want_rows) << entry->key;
            ASSERT_EQ(tap.first_position, start + rows - want_rows) << entry->key;
            ASSERT_EQ(std::pair(tap.heads, tap.width), shape(point)) << entry->key;
            ASSERT_EQ(entry->values.size(), tap.rows * tap.heads * tap.width) << entry->key;
            ASSERT_TRUE(std::ranges::all_of(entry->values, [](float x) { return std::isfinite(x); }))
                << entry->key;
            ASSERT_TRUE(std::ranges::any_of(entry->values, [](float x) { return x != 0; })) << entry->key;
            ++entry;
          }
        }
        ASSERT_EQ(entry, log.entries.end()) << "more taps than points";
      }
    }
  }
}

TEST_P(TapsOfEveryBackend, CountForwardCallsOfTheirSession) {
  TapLog log;
  log.filter = [](TapPoint point, std::size_t) { return point == TapPoint::embed; };
  Session session(*model, 10);
  ForwardOptions options;
  options.taps = &log;
  options.chunk = 2;
  session.forward(std::vector<TokenId>{1, 2, 3}, options);
  session.forward(std::vector<TokenId>{4}, options);
  session.rewind(1);
  session.forward(std::vector<TokenId>{5}, options);
  std::vector<std::pair<std::uint64_t, std::size_t>> got;
  for (const auto& entry : log.entries) got.emplace_back(entry.tap.run, entry.tap.first_position);
  EXPECT_EQ(got, (decltype(got){{0, 0}, {1, 2}, {2, 3}, {3, 1}}));
}

TEST_P(TapsOfEveryBackend, NeverComeUnasked) {
  TapLog log;
  log.filter = [](TapPoint, std::size_t) { return false; };
  const auto tokens = some_tokens(9, config.vocab_size);
  EXPECT_EQ(run(tokens, &log), run(tokens, nullptr));
  EXPECT_TRUE(log.entries.empty());
}

TEST_P(TapsOfEveryBackend, AreTheSameAloneAndTogether) {
  const auto tokens = some_tokens(17, config.vocab_size);
  TapLog together;
  const auto logits = run(tokens, &together, 64, true);
  for (const auto& want : together.entries) {
    TapLog alone;
    alone.filter = [&](TapPoint point, std::size_t layer) {
      return point == want.tap.point && layer == want.tap.layer;
    };
    EXPECT_EQ(run(tokens, &alone, 64, true), logits);
    ASSERT_EQ(alone.entries.size(), 1U) << want.key;
    EXPECT_EQ(alone.entries[0].key, want.key);
    EXPECT_EQ(alone.entries[0].values, want.values) << want.key;
  }
}

std::map<std::string, std::vector<float>> by_key(const TapLog& log) {
  std::map<std::string, std::vector<float>> map;
  for (const auto& entry : log.entries) map[entry.key] = entry.values;
  return map;
}

/// Zeros `point` wherever it arrives.
void zero(TapLog& log, TapPoint point) {
  log.change = [point](const Tap& tap) {
    if (tap.point == point) std::ranges::fill(tap.values, 0.0F);
  };
}

TEST_P(TapsOfEveryBackend, LetTheObserverReplaceValues) {
  const auto tokens = some_tokens(5, config.vocab_size);
  TapLog plain;
  run(tokens, &plain);
  const auto before = by_key(plain);
  const auto changed = [&](TapPoint point) {
    TapLog log;
    zero(log, point);
    run(tokens, &log);
    return by_key(log);
  };
  for (std::size_t layer = 0; layer < config.n_layers; ++layer) {
    const auto at = [&](const auto& taps, TapPoint point) { return taps.at(tap_key(point, layer)); };
    // What a zeroed point feeds adds nothing, and all that comes later has noticed.
    const auto no_mlp = changed(TapPoint::mlp_act);
    EXPECT_EQ(at(no_mlp, TapPoint::block_out), at(no_mlp, TapPoint::attn_resid));
    EXPECT_NE(at(no_mlp, TapPoint::block_out), at(before, TapPoint::block_out));
    const auto no_attention = changed(TapPoint::attn_out);
    EXPECT_EQ(
        at(no_attention, TapPoint::attn_resid),
        layer == 0 ? no_attention.at("embed") : no_attention.at(tap_key(TapPoint::block_out, layer - 1)));
    const auto no_values = changed(TapPoint::v);
    EXPECT_EQ(at(no_values, TapPoint::attn_out), std::vector<float>(5 * 6 * 20, 0.0F));
    const auto no_attn_norm = changed(TapPoint::attn_norm);
    EXPECT_EQ(at(no_attn_norm, TapPoint::v), std::vector<float>(5 * 2 * 20, 0.0F));
    const auto no_mlp_norm = changed(TapPoint::mlp_norm);
    EXPECT_EQ(at(no_mlp_norm, TapPoint::mlp_act), std::vector<float>(5 * 151, 0.0F));
    const auto no_residual = changed(TapPoint::block_out);
    if (layer > 0) {
      EXPECT_EQ(at(no_residual, TapPoint::attn_norm), std::vector<float>(5 * 72, 0.0F));
    }
  }
  const auto no_query = changed(TapPoint::q), no_key = changed(TapPoint::k);
  // All scores 0: every position weighs the same, whichever side is zero.
  EXPECT_EQ(no_query.at("layers.0.attn_out"), no_key.at("layers.0.attn_out"));
  const auto& v = no_query.at("layers.0.v");
  for (std::size_t i = 0; i < 20; ++i) {
    double mean = 0;
    for (std::size_t t = 0; t < 5; ++t) mean += static_cast<double>(v[t * 40 + 20 + i]) / 5;
    EXPECT_NEAR(no_query.at("layers.0.attn_out")[(4 * 6 + 5) * 20 + i], mean, 1e-6);  // row 4, head 5
  }
  const auto no_final_norm = changed(TapPoint::final_norm);
  EXPECT_EQ(no_final_norm.at("logits"), std::vector<float>(347, 0.0F));
}

TEST_P(TapsOfEveryBackend, CarryReplacedRowsIntoTheResultAndTheCache) {
  const auto tokens = some_tokens(8, config.vocab_size, 1), others = some_tokens(8, config.vocab_size, 2);
  const auto want = run(others, nullptr, 3);
  ASSERT_NE(run(tokens, nullptr, 3), want);
  TapLog donor;
  donor.filter = [](TapPoint point, std::size_t) { return point == TapPoint::embed; };
  run(others, &donor, 8);
  TapLog log;
  log.filter = donor.filter;
  log.change = [&](const Tap& tap) {
    const auto from = donor.entries[0].values.begin() + static_cast<std::ptrdiff_t>(tap.first_position * 72);
    std::copy_n(from, tap.values.size(), tap.values.begin());
  };
  EXPECT_EQ(run(tokens, &log, 3), want);

  TapLog last;
  last.filter = [](TapPoint point, std::size_t) { return point == TapPoint::logits; };
  last.change = [](const Tap& tap) { tap.values[5] = 1234; };
  EXPECT_EQ(run(tokens, &last)[5], 1234);
}

}  // namespace
}  // namespace fs::engine

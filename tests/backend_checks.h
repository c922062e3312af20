#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/session.h"
#include "model/dtype.h"
#include "model/quantize.h"
#include "synthetic_model.h"
#include "tap_log.h"

/// How a backend is compared with the reference.
namespace fs::testing {

/// The design's tolerance; NaN never passes.
inline void expect_close(std::span<const float> got, std::span<const float> want, const std::string& what,
                         double tolerance = 1e-4) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::abs(double{got[i]} - want[i]) <= tolerance + tolerance * std::abs(double{want[i]}))
        << what << " element " << i << ": " << got[i] << ", expected " << want[i];
  }
}

inline void expect_same_taps(const TapLog& got, const TapLog& want, const std::string& what) {
  ASSERT_EQ(got.entries.size(), want.entries.size()) << what;
  for (std::size_t i = 0; i < got.entries.size(); ++i) {
    ASSERT_EQ(got.entries[i].key, want.entries[i].key) << what;
    EXPECT_EQ(got.entries[i].tap.heads, want.entries[i].tap.heads);
    EXPECT_EQ(got.entries[i].tap.width, want.entries[i].tap.width);
    EXPECT_EQ(got.entries[i].tap.first_position, want.entries[i].tap.first_position);
    expect_close(got.entries[i].values, want.entries[i].values, what + " " + got.entries[i].key);
  }
}

/// The taps of one pass over `tokens` after a prefill of `before`, all rows of logits included.
inline TapLog taps_of(const engine::Backend& backend, std::span<const TokenId> before,
                      std::span<const TokenId> tokens) {
  TapLog log;
  engine::Session session(backend, before.size() + tokens.size());
  if (!before.empty()) session.forward(before);
  engine::ForwardOptions options;
  options.chunk = tokens.size();
  options.taps = &log;
  options.on_logits = [](std::size_t, std::span<const float>) {};
  session.forward(tokens, options);
  return log;
}

/// Rows and then three steps over a cache in `kv`. The reference is fed with the keys and values that the
/// other side's cache holds, each of which has to be the nearest one to its own; every other value must be
/// within tolerance.
inline void expect_kv_format(const engine::Backend& got, const engine::Backend& want, model::Dtype kv,
                             std::size_t rows) {
  const std::size_t vocab_size = got.config().vocab_size;
  const float half_ulp = kv == model::Dtype::f16 ? 0x1p-11F : 0x1p-8F;
  const auto tokens = some_tokens(rows, vocab_size), next = some_tokens(3, vocab_size, 4);
  const auto run = [&](const engine::Backend& backend, TapLog& log) {
    engine::Session session(backend, rows + next.size());
    engine::ForwardOptions options;
    options.taps = &log;
    options.chunk = 130;
    session.forward(tokens, options);
    session.forward(next, options);
  };
  TapLog held, log;
  run(got, held);
  std::size_t at = 0;
  log.change = [&](const engine::Tap& tap) {
    const auto& entry = held.entries.at(at++);
    if (tap.point != engine::TapPoint::k && tap.point != engine::TapPoint::v) return;
    ASSERT_EQ(entry.key, engine::tap_key(tap.point, tap.layer));
    std::copy(entry.values.begin(), entry.values.end(), tap.values.begin());
  };
  run(want, log);
  ASSERT_EQ(log.entries.size(), held.entries.size());
  for (std::size_t i = 0; i < held.entries.size(); ++i) {
    const auto &ours = held.entries[i].values, &theirs = log.entries[i].values;
    const std::string what = fmt::format("{} rows {} {}", model::name(kv), rows, held.entries[i].key);
    const engine::TapPoint point = held.entries[i].tap.point;
    if (point != engine::TapPoint::k && point != engine::TapPoint::v) {
      expect_close(ours, theirs, what);
      continue;
    }
    std::vector<std::byte> stored(ours.size() * 2);
    std::vector<float> again(ours.size());
    ASSERT_TRUE(model::encode(kv, ours, stored.data()));
    model::decode(kv, stored.data(), again);
    ASSERT_EQ(again, ours) << what << ": not values of the format";
    for (std::size_t j = 0; j < ours.size(); ++j) {
      ASSERT_LE(std::abs(ours[j] - theirs[j]), 1e-5F + (half_ulp + 1e-5F) * std::abs(theirs[j])) << what;
    }
  }
}

/// `count` tokens after `prompt`, the most likely one each time.
inline std::vector<TokenId> greedy(const engine::Backend& backend, std::span<const TokenId> prompt,
                                   std::size_t count) {
  engine::Session session(backend, prompt.size() + count);
  std::vector<TokenId> picked;
  std::vector<TokenId> next(prompt.begin(), prompt.end());
  while (picked.size() < count) {
    const auto logits = session.forward(next);
    picked.push_back(static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    next = {picked.back()};
  }
  return picked;
}

}  // namespace fs::testing

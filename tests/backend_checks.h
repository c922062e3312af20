#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "engine/session.h"
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

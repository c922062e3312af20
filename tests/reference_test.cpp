#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/session.h"
#include "model/synthetic.h"
#include "naive_qwen3.h"
#include "reference/backend.h"
#include "reference/ops.h"
#include "synthetic_model.h"
#include "tap_log.h"

namespace fs::reference {
namespace {

using testing::some_tokens;
using testing::synthetic_weights;
using testing::TapLog;
namespace naive = testing::naive;

constexpr std::size_t kRows[] = {1, 2, 5, 17, 64, 129};

/// Values in [−scale, scale), a pure function of `seed`.
std::vector<float> values(std::size_t count, std::uint64_t seed, float scale = 1) {
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    result[i] = scale * (static_cast<float>(seed >> 40) * 0x1p-23F - 1.0F);
  }
  return result;
}

naive::Rows as_rows(const std::vector<float>& x, std::size_t width) {
  naive::Rows rows;
  for (auto from = x.begin(); from != x.end(); from += static_cast<std::ptrdiff_t>(width)) {
    rows.emplace_back(from, from + static_cast<std::ptrdiff_t>(width));
  }
  return rows;
}

/// The tolerance of the project, NaN included: it never passes.
void expect_close(std::span<const float> got, const naive::Rows& want, const std::string& what) {
  std::size_t n = 0;
  for (const auto& row : want) {
    for (const double value : row) {
      ASSERT_LT(n, got.size()) << what;
      ASSERT_TRUE(std::abs(static_cast<double>(got[n]) - value) <= 1e-4 + 1e-4 * std::abs(value))
          << what << " element " << n << ": " << got[n] << ", expected " << value;
      ++n;
    }
  }
  ASSERT_EQ(n, got.size()) << what;
}

const float kNan = std::nanf("");

/// A weight matrix and the numbers behind it.
struct OwnedMatrix {
  std::vector<std::uint16_t> data;
  model::Matrix view;
  OwnedMatrix(std::size_t rows, std::size_t cols) : data(rows * cols) {
    model::synthesize(3, "q_proj", cols, 0, data);
    view = {model::Dtype::bf16, rows, cols, std::as_bytes(std::span(data)).data()};
  }
};

TEST(Embed, GathersRows) {
  const OwnedMatrix table(7, 5);
  const std::vector<TokenId> tokens{6, 0, 6, 3};
  std::vector<float> out(20, kNan);
  embed(table.view, tokens, out);
  for (std::size_t t = 0; t < 4; ++t) {
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(out[t * 5 + i], model::bf16_to_float(table.data[tokens[t] * 5 + i]));
    }
  }
}

TEST(RmsNorm, MatchesItsEquation) {
  for (const std::size_t width : {1U, 20U, 128U, 1024U}) {
    for (const std::size_t rows : kRows) {
      const auto x = values(rows * width, rows, 4), weight = values(width, 9, 2);
      naive::Rows want = as_rows(x, width);
      for (auto& row : want) naive::normalise(row, 0, weight, 1e-6);
      std::vector<float> out(x.size(), kNan);
      rms_norm(x, weight, 1e-6, out);
      ASSERT_NO_FATAL_FAILURE(expect_close(out, want, "rms_norm"));
      std::vector<float> in_place = x;
      rms_norm(in_place, weight, 1e-6, in_place);
      ASSERT_EQ(in_place, out);
    }
  }
}

TEST(RmsNorm, AddsEpsilonToTheMeanSquare) {
  const model::Vector ones(4, 1.0F);
  std::vector<float> out(4, kNan);
  rms_norm(std::vector<float>(4, 0.0F), ones, 1e-6, out);
  EXPECT_EQ(out, std::vector<float>(4, 0.0F));
  rms_norm(std::vector<float>{1, -1, 1, -1}, ones, 3, out);  // 1 / sqrt(1 + 3)
  EXPECT_EQ(out, (std::vector<float>{0.5F, -0.5F, 0.5F, -0.5F}));
}

TEST(Linear, MatchesItsEquationAtRealWidths) {
  ThreadPool pool(2);
  struct Case {
    std::size_t outputs, inputs, rows;
  };
  std::vector<Case> cases{{1024, 3072, 3}, {3072, 1024, 2}, {2048, 1024, 5}, {151936, 1024, 1}};
  for (const std::size_t rows : kRows) cases.push_back({151, 72, rows});
  cases.push_back({3, 1, 2});
  cases.push_back({1, 9, 1});
  for (const auto& [outputs, inputs, rows] : cases) {
    const OwnedMatrix w(outputs, inputs);
    const auto x = values(rows * inputs, inputs);
    naive::Rows want;
    for (const auto& row : as_rows(x, inputs)) want.push_back(naive::times(w.view, row));
    std::vector<float> out(rows * outputs, kNan);
    linear(pool, w.view, x, out);
    ASSERT_NO_FATAL_FAILURE(expect_close(out, want, fmt::format("{}x{}x{}", rows, outputs, inputs)));
  }
}

TEST(Rope, RotatesPairsHalfAHeadApart) {
  constexpr std::size_t dim = 20;
  for (std::size_t i = 0; i < dim; ++i) {
    std::vector<float> x(2 * dim);  // two heads; only the second is not zero
    x[dim + i] = 1;
    rope(x, 2, dim, 7, 1e4);
    const std::size_t pair = i % (dim / 2);
    const double angle = 7 / std::pow(1e4, static_cast<double>(2 * pair) / dim);
    std::vector<float> want(2 * dim);
    want[dim + i] = static_cast<float>(std::cos(angle));
    want[dim + (i < dim / 2 ? i + dim / 2 : i - dim / 2)] =
        static_cast<float>(i < dim / 2 ? std::sin(angle) : -std::sin(angle));
    for (std::size_t j = 0; j < 2 * dim; ++j) EXPECT_NEAR(x[j], want[j], 1e-7) << i << " to " << j;
  }
}

TEST(Rope, AtPositionZeroIsTheIdentity) {
  const auto before = values(3 * 20, 1);
  auto x = before;
  rope(x, 3, 20, 0, 1e6);
  EXPECT_EQ(x, before);
}

TEST(Rope, KeepsTheLengthOfEveryPair) {
  const auto before = values(129 * 2 * 128, 2);
  auto x = before;
  rope(x, 2, 128, 40831, 1e6);  // up to the last position of Qwen3
  for (std::size_t head = 0; head < x.size(); head += 128) {
    for (std::size_t i = head; i < head + 64; ++i) {
      ASSERT_NEAR(std::hypot(x[i], x[i + 64]), std::hypot(before[i], before[i + 64]), 1e-6);
    }
  }
}

TEST(Rope, MakesScoresDependOnDistanceAlone) {
  const auto q = values(128, 3), k = values(128, 4);
  const auto score = [&](std::size_t q_position, std::size_t k_position) {
    auto a = q, b = k;
    rope(a, 1, 128, q_position, 1e6);
    rope(b, 1, 128, k_position, 1e6);
    double sum = 0;
    for (std::size_t i = 0; i < 128; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
  };
  EXPECT_NEAR(score(9, 4), score(5, 0), 1e-5);
  EXPECT_NEAR(score(40959, 40954), score(5, 0), 1e-5);
  EXPECT_GT(std::abs(score(9, 4) - score(9, 5)), 1e-2);
}

TEST(Rope, CountsPositionsFromTheFirst) {
  for (const std::size_t rows : kRows) {
    const auto x = values(rows * 3 * 20, rows);
    naive::Rows want = as_rows(x, 60);
    for (std::size_t t = 0; t < rows; ++t) {
      for (const std::size_t head : {0U, 20U, 40U}) naive::rotate(want[t], head, 20, 11 + t, 1e4);
    }
    auto got = x;
    rope(got, 3, 20, 11, 1e4);
    ASSERT_NO_FATAL_FAILURE(expect_close(got, want, "rope"));
  }
}

model::Config heads(std::size_t n_q, std::size_t n_kv, std::size_t dim) {
  model::Config config;
  config.n_q_heads = n_q;
  config.n_kv_heads = n_kv;
  config.head_dim = dim;
  return config;
}

TEST(Attention, MatchesTheFullScoreMatrix) {
  ThreadPool pool(2);
  for (const auto& config : {heads(6, 2, 20), heads(4, 4, 6), heads(3, 1, 10), heads(16, 8, 128)}) {
    for (const std::size_t rows : kRows) {
      const auto q = values(rows * config.q_width(), 1, 2), k = values(rows * config.kv_width(), 2, 2),
                 v = values(rows * config.kv_width(), 3);
      const auto want =
          naive::attend(as_rows(q, config.q_width()), as_rows(k, config.kv_width()),
                        as_rows(v, config.kv_width()), config.n_q_heads, config.n_kv_heads, config.head_dim);
      std::vector<float> out(q.size(), kNan);
      attention(pool, config, q, k, v, 0, out);
      ASSERT_NO_FATAL_FAILURE(expect_close(out, want, "one shot"));

      const std::size_t start = rows / 2;  // the later rows alone, on the keys and values of all
      std::vector<float> tail((rows - start) * config.q_width(), kNan);
      attention(pool, config, std::span(q).subspan(start * config.q_width()), k, v, start, tail);
      ASSERT_NO_FATAL_FAILURE(
          expect_close(tail, {want.begin() + static_cast<std::ptrdiff_t>(start), want.end()}, "tail"));
    }
  }
}

TEST(Attention, SeesNoLaterPosition) {
  ThreadPool pool(1);
  const auto config = heads(4, 2, 8);
  const auto q = values(5 * 32, 1);
  auto k = values(5 * 16, 2), v = values(5 * 16, 3);
  std::vector<float> before(q.size()), after(q.size());
  attention(pool, config, q, k, v, 0, before);
  for (std::size_t i = 3 * 16; i < k.size(); ++i) k[i] = v[i] = 1e30F;
  attention(pool, config, std::span(q).first(3 * 32), k, v, 0, std::span(after).first(3 * 32));
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 3 * 32, after.begin()));
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_EQ(before[i], v[i / 16 * 8 + i % 8]);  // position 0 sees itself alone
}

TEST(Attention, GivesEveryGroupOfQueryHeadsItsOwnKeyValueHead) {
  ThreadPool pool(1);
  const auto config = heads(6, 2, 4);
  const auto q = values(3 * 24, 1), k = values(3 * 8, 2);
  std::vector<float> v(3 * 8), out(q.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = i % 8 < 4 ? 10 : 20;  // the head's mark
  attention(pool, config, q, k, v, 0, out);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_FLOAT_EQ(out[i], i / 4 % 6 < 3 ? 10 : 20) << i;
}

TEST(Attention, SurvivesScoresThatOverflowExp) {
  ThreadPool pool(1);
  const auto config = heads(1, 1, 2);
  const std::vector<float> q{1e6F, 0, 1e6F, 0}, k{1e3F, 0, -1e3F, 0}, v{1, 2, 3, 4};
  std::vector<float> out(4, kNan);
  attention(pool, config, q, k, v, 0, out);
  EXPECT_EQ(out, (std::vector<float>{1, 2, 1, 2}));
}

TEST(Swiglu, MatchesItsEquation) {
  std::vector<float> gate{0, 1, -1, 3, 200, -200, -1e30F, 1e30F};
  swiglu(gate, std::vector<float>{5, 2, 2, -1, 1, 1, 1, 1});
  const std::vector<double> want{
      0, 2 / (1 + std::exp(-1)), -2 / (1 + std::exp(1)), -3 / (1 + std::exp(-3)), 200, 0, 0, 1e30};
  expect_close(gate, {want}, "swiglu");
}

TEST(Add, AddsInPlace) {
  std::vector<float> x{1, 2, 3};
  add(x, std::vector<float>{10, -2, 0.5F});
  EXPECT_EQ(x, (std::vector<float>{11, 0, 3.5F}));
}

// --- the whole pass
// --------------------------------------------------------------------------------------------------

std::vector<model::Config> configs() {
  model::Config small = testing::small_config(), multi_query = small, multi_head = small;
  multi_query.n_kv_heads = 1;
  multi_query.rope_theta = 1e6;
  multi_query.tie_word_embeddings = false;
  multi_head.n_q_heads = multi_head.n_kv_heads = 2;
  multi_head.rms_norm_eps = 1e-2;
  multi_head.n_layers = 5;
  return {small, multi_query, multi_head, model::synthetic_config("tiny-odd")};
}

/// Runs `tokens` in one session and returns every tap with all rows of logits.
TapLog run(const engine::Backend& backend, std::span<const TokenId> tokens, std::size_t chunk) {
  TapLog log;
  engine::Session session(backend, tokens.size());
  engine::ForwardOptions options;
  options.chunk = chunk;
  options.taps = &log;
  options.on_logits = [](std::size_t, std::span<const float>) {};
  session.forward(tokens, options);
  return log;
}

TEST(Forward, MatchesAnIndependentPassInDoubleAtEveryTap) {
  for (const auto& config : configs()) {
    const model::Weights weights = synthetic_weights(config, 5);
    const auto backend = make_backend(config, weights, 2);
    for (const std::size_t rows : kRows) {
      const auto tokens = some_tokens(rows, config.vocab_size, rows);
      const auto want = naive::forward(config, weights, tokens);
      const TapLog log = run(*backend, tokens, rows);
      ASSERT_EQ(log.entries.size(), want.size());
      for (const auto& entry : log.entries) {
        ASSERT_NO_FATAL_FAILURE(
            expect_close(entry.values, want.at(entry.key), fmt::format("{} at T={}", entry.key, rows)));
      }
    }
  }
}

TEST(Forward, IsBitIdenticalForAnyNumberOfThreadsAndAnyChunk) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto tokens = some_tokens(65, config.vocab_size);
  const auto joined = [&](std::size_t threads, std::size_t chunk) {
    const auto backend = make_backend(config, synthetic_weights(config), threads);
    std::map<std::string, std::vector<float>> taps;
    for (const auto& entry : run(*backend, tokens, chunk).entries) {
      auto& all = taps[entry.key];
      all.insert(all.end(), entry.values.begin(), entry.values.end());
    }
    return taps;
  };
  const auto want = joined(1, 65);
  for (const auto& [threads, chunk] : {std::pair{2, 65}, {3, 65}, {7, 65}, {1, 1}, {2, 7}, {3, 64}}) {
    const auto got = joined(static_cast<std::size_t>(threads), static_cast<std::size_t>(chunk));
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [key, all] : want) {
      ASSERT_EQ(got.at(key).size(), all.size());
      EXPECT_EQ(std::memcmp(got.at(key).data(), all.data(), all.size() * sizeof(float)), 0)
          << key << " with " << threads << " threads, chunk " << chunk;
    }
  }
}

}  // namespace
}  // namespace fs::reference

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/backend_flags.h"
#include "engine/session.h"
#include "engine/tap.h"
#include "model/synthetic.h"
#include "synthetic_model.h"
#include "tap_log.h"

namespace fs::engine {
namespace {

using testing::small_config;
using testing::some_tokens;
using testing::synthetic_weights;
using testing::TapLog;

constexpr std::size_t kRows[] = {1, 2, 5, 17, 64, 129};

/// What every backend must do, whatever it runs on.
class EveryBackend : public ::testing::TestWithParam<std::string_view> {
 protected:
  std::unique_ptr<Backend> backend(const model::Config& config, std::uint64_t seed = 0) const {
    return backend(config, synthetic_weights(config, seed));
  }
  std::unique_ptr<Backend> backend(const model::Config& config, model::Weights weights) const {
    return make_backend({.name = GetParam(), .threads = 2}, config, std::move(weights));
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, EveryBackend, ::testing::Values("reference", "cpu"));

void expect_close(std::span<const float> got, std::span<const float> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::abs(got[i] - want[i]) <= 1e-4 + 1e-4 * std::abs(want[i]))
        << what << " element " << i << ": " << got[i] << ", expected " << want[i];
  }
}

void expect_error(const std::function<void()>& body, ExitCode code, const std::vector<std::string>& parts) {
  try {
    body();
    ADD_FAILURE() << "no error; expected one naming " << parts.front();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const auto& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in: " << error.what();
    }
  }
}

std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

/// Logits of every row, [tokens, vocab_size], fed in chunks.
std::vector<float> all_logits(Session& session, std::span<const TokenId> tokens, std::size_t chunk) {
  std::vector<float> all;
  std::size_t next = session.position();
  ForwardOptions options;
  options.chunk = chunk;
  options.on_logits = [&](std::size_t position, std::span<const float> logits) {
    EXPECT_EQ(position, next++);
    all.insert(all.end(), logits.begin(), logits.end());
  };
  const auto last = copy(session.forward(tokens, options));
  EXPECT_TRUE(std::equal(last.rbegin(), last.rend(), all.rbegin())) << "forward() returns the last row";
  return all;
}

// --- sessions
// --------------------------------------------------------------------------------------------------------

TEST_P(EveryBackend, GivesTheSameLogitsForAnyChunking) {
  for (const auto& config : {small_config(), model::synthetic_config("tiny-odd")}) {
    const auto model = backend(config);
    for (const std::size_t count : kRows) {
      const auto tokens = some_tokens(count, config.vocab_size, count);
      Session one_shot(*model, count);
      const auto want = all_logits(one_shot, tokens, count);
      ASSERT_EQ(want.size(), count * config.vocab_size);
      for (const std::size_t chunk : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{7},
                                      std::size_t{64}, count - 1, count + 1}) {
        Session session(*model, count);
        const std::string what = fmt::format("T={} chunk={}", count, chunk);
        ASSERT_NO_FATAL_FAILURE(expect_close(all_logits(session, tokens, chunk), want, what));
        ASSERT_EQ(session.position(), count);
        ASSERT_TRUE(std::ranges::equal(session.tokens(), tokens));
      }
    }
  }
}

TEST_P(EveryBackend, RunsPromptsInChunksOfTheSizeAskedFor) {
  const auto config = model::synthetic_config("tiny-odd");
  const auto tokens = some_tokens(70, config.vocab_size);
  const auto default_backend = backend(config);
  Session one_shot(*default_backend, 70);
  const auto want = all_logits(one_shot, tokens, 70);
  for (const std::size_t chunk : {1U, 3U, 64U}) {
    const auto model = make_backend({.name = GetParam(), .threads = 2, .prefill_chunk = chunk}, config,
                                    synthetic_weights(config));
    EXPECT_EQ(model->preferred_chunk(), chunk);
    Session session(*model, 70);
    std::size_t calls = 0;
    ForwardOptions options;
    options.progress = [&](std::string_view, std::uint64_t, std::uint64_t) { ++calls; };
    expect_close(session.forward(tokens, options), std::span(want).last(config.vocab_size),
                 fmt::format("chunk {}", chunk));
    EXPECT_EQ(calls, (70 + chunk - 1) / chunk);
  }
}

TEST_P(EveryBackend, GivesTheSameLogitsForAnySplitIntoCalls) {
  const auto config = model::synthetic_config("tiny-odd");
  const auto model = backend(config);
  const auto tokens = some_tokens(70, config.vocab_size);
  Session one_shot(*model, 70);
  const auto want = copy(one_shot.forward(tokens));
  for (const std::size_t first : {1U, 2U, 63U, 64U, 65U, 69U}) {
    Session session(*model, 70);
    session.forward(std::span(tokens).first(first));
    ASSERT_NO_FATAL_FAILURE(
        expect_close(session.forward(std::span(tokens).subspan(first)), want, "two calls"));
  }
  Session step(*model, 70);
  std::vector<float> last;
  for (const TokenId token : tokens) last = copy(step.forward(std::span(&token, 1)));
  expect_close(last, want, "token by token");
}

TEST_P(EveryBackend, LogitsDependOnEveryTokenAndItsPlace) {  // the agreement above is not that of constants
  const auto config = small_config();
  const auto model = backend(config);
  const auto tokens = some_tokens(9, config.vocab_size);
  Session session(*model, 9);
  const auto want = copy(session.forward(tokens));
  const auto distance = [&](std::vector<TokenId> changed) {
    session.rewind(0);
    const auto got = session.forward(changed);
    double largest = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(got[i] - want[i])));
    return largest;
  };
  EXPECT_LT(distance(tokens), 1e-6);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    auto changed = tokens;
    changed[i] = (changed[i] + 1) % 53;
    EXPECT_GT(distance(changed), 1e-3) << "token " << i;
  }
  auto swapped = tokens;
  std::swap(swapped[2], swapped[5]);
  ASSERT_NE(swapped, tokens);
  EXPECT_GT(distance(swapped), 1e-3);
}

TEST_P(EveryBackend, RewindsAsIfTheRestHadNeverBeen) {
  const auto config = small_config();
  const auto model = backend(config);
  const auto first = some_tokens(40, config.vocab_size, 1), second = some_tokens(30, config.vocab_size, 2);
  for (const std::size_t position : {0U, 1U, 7U, 39U, 40U}) {
    Session session(*model, 100);
    session.forward(first);
    session.rewind(position);
    EXPECT_EQ(session.position(), position);
    const auto got = copy(session.forward(second));

    std::vector<TokenId> joined(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(position));
    joined.insert(joined.end(), second.begin(), second.end());
    EXPECT_TRUE(std::ranges::equal(session.tokens(), joined));
    Session fresh(*model, 100);
    ASSERT_NO_FATAL_FAILURE(expect_close(got, fresh.forward(joined), fmt::format("from {}", position)));
  }
  Session session(*model, 100);
  session.forward(first);
  expect_error([&] { session.rewind(41); }, ExitCode::usage, {"41", "40"});
  EXPECT_EQ(session.position(), 40U);
}

TEST_P(EveryBackend, KeepsSessionsApart) {
  const auto config = small_config();
  const auto model = backend(config);
  const auto a = some_tokens(12, config.vocab_size, 1), b = some_tokens(12, config.vocab_size, 2);
  Session alone_a(*model, 12), alone_b(*model, 12), turns_a(*model, 12), turns_b(*model, 12);
  const auto want_a = copy(alone_a.forward(a)), want_b = copy(alone_b.forward(b));
  std::vector<float> got_a, got_b;
  for (std::size_t i = 0; i < 12; ++i) {
    got_a = copy(turns_a.forward(std::span(a).subspan(i, 1)));
    got_b = copy(turns_b.forward(std::span(b).subspan(i, 1)));
  }
  expect_close(got_a, want_a, "a");
  expect_close(got_b, want_b, "b");
}

TEST_P(EveryBackend, ChecksTheContext) {
  const auto config = small_config();
  const auto model = backend(config);
  expect_error([&] { Session(*model, 0); }, ExitCode::usage, {"context of 0", "300"});
  expect_error([&] { Session(*model, 301); }, ExitCode::usage, {"context of 301", "300"});
  expect_error([&] { check_context(301, config); }, ExitCode::usage, {"context of 301", "300"});
  check_context(1, config);
  check_context(300, config);

  const auto tokens = some_tokens(11, config.vocab_size);
  Session session(*model, 10);
  EXPECT_EQ(session.context(), 10U);
  expect_error([&] { session.forward(tokens); }, ExitCode::usage, {"11 tokens", "into 10", "--ctx"});
  EXPECT_EQ(session.position(), 0U);
  session.forward(std::span(tokens).first(4));
  expect_error([&] { session.forward(std::span(tokens).first(7)); }, ExitCode::usage,
               {"7 tokens", "after 4", "10"});
  EXPECT_EQ(session.position(), 4U);
  const auto got = copy(session.forward(std::span(tokens).subspan(4, 6)));
  expect_error([&] { session.forward(std::span(tokens).first(1)); }, ExitCode::usage, {"full", "10"});
  Session fresh(*model, 10);
  expect_close(got, fresh.forward(std::span(tokens).first(10)), "after refused calls");
}

TEST_P(EveryBackend, FillsTheWholeContextOfTheModel) {
  const auto config = small_config();
  const auto model = backend(config);
  Session session(*model, config.max_positions);
  const auto tokens = some_tokens(config.max_positions, config.vocab_size);
  for (const float logit : session.forward(tokens)) EXPECT_TRUE(std::isfinite(logit));
  EXPECT_EQ(session.position(), 300U);
}

TEST_P(EveryBackend, RefusesEmptyCallsAndUnknownIds) {
  const auto config = small_config();
  const auto model = backend(config);
  Session session(*model, 10);
  expect_error([&] { session.forward({}); }, ExitCode::usage, {"empty"});
  for (const TokenId bad : {TokenId{53}, std::numeric_limits<TokenId>::max()}) {
    const std::vector<TokenId> tokens{1, 2, bad};
    expect_error([&] { session.forward(tokens); }, ExitCode::usage, {std::to_string(bad), "53"});
    EXPECT_EQ(session.position(), 0U);
  }
  session.forward(std::vector<TokenId>{0, 52});
}

TEST_P(EveryBackend, NamesThePositionOfALogitThatIsNotFinite) {
  const auto config = small_config();
  for (const float poison : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    model::Weights weights = synthetic_weights(config);
    const auto table = std::make_shared<std::vector<std::uint16_t>>(config.vocab_size * config.hidden);
    std::copy_n(weights.embed_tokens.data, table->size() * 2,
                std::as_writable_bytes(std::span(*table)).data());
    (*table)[40 * config.hidden] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(poison) >> 16);
    weights.embed_tokens.data = std::as_bytes(std::span(*table)).data();  // lm_head keeps the good one
    weights.storage.push_back(table);
    const auto model = backend(config, weights);

    const std::vector<TokenId> tokens{1, 2, 3, 40, 5, 6};
    ForwardOptions options;
    options.chunk = 2;
    std::size_t seen = 0;
    options.on_logits = [&](std::size_t, std::span<const float>) { ++seen; };
    Session session(*model, 10);
    expect_error([&] { session.forward(tokens, options); }, ExitCode::failed,
                 {"position 3", "token", "not finite"});
    EXPECT_EQ(seen, 3U);
    EXPECT_EQ(session.position(), 2U);  // the last whole chunk
    session.forward(std::vector<TokenId>{3, 4});
    EXPECT_EQ(session.position(), 4U);

    Session last_row(*model, 10);
    expect_error([&] { last_row.forward(std::span(tokens).first(4)); }, ExitCode::failed, {"position 3"});
  }
}

struct Interrupt : std::runtime_error {
  Interrupt() : std::runtime_error("interrupt") {}
};

TEST_P(EveryBackend, StandsAfterItsLastWholeChunkWhenInterrupted) {
  const auto config = small_config();
  const auto model = backend(config);
  const auto tokens = some_tokens(20, config.vocab_size);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> calls;
  ForwardOptions options;
  options.chunk = 6;
  options.progress = [&](std::string_view stage, std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(stage, "prefill");
    calls.emplace_back(done, total);
    if (done == 12) throw Interrupt();
  };
  Session session(*model, 20);
  EXPECT_THROW(session.forward(tokens, options), Interrupt);
  EXPECT_EQ(calls, (decltype(calls){{0, 20}, {6, 20}, {12, 20}}));
  EXPECT_EQ(session.position(), 12U);
  Session fresh(*model, 20);
  const auto want = copy(fresh.forward(tokens));
  expect_close(session.forward(std::span(tokens).subspan(12)), want, "after an interrupt");
}

TEST_P(EveryBackend, AgreesOnTheRowsOfLogits) {
  const auto config = small_config();
  const auto model = backend(config);
  const auto tokens = some_tokens(5, config.vocab_size);
  const auto run = [&](LogitRows rows, std::size_t count) {
    const auto cache = model->make_cache(5);
    std::vector<float> logits(count * config.vocab_size, std::nanf(""));
    TapLog log;
    log.filter = [](TapPoint point, std::size_t) { return point >= TapPoint::final_norm; };
    Pass pass;
    pass.tokens = tokens;
    pass.logit_rows = rows;
    pass.logits = logits;
    pass.taps = &log;
    model->forward(*cache, pass);
    EXPECT_EQ(log.entries.size(), count == 0 ? 1U : 2U);
    EXPECT_EQ(log.entries[0].tap.rows, 5U);
    if (count > 0) {
      EXPECT_EQ(log.entries[1].tap.rows, count);
      EXPECT_EQ(log.entries[1].tap.first_position, 5 - count);
      EXPECT_EQ(log.entries[1].values, logits);
    }
    return logits;
  };
  run(LogitRows::none, 0);
  const auto last = run(LogitRows::last, 1), all = run(LogitRows::all, 5);
  expect_close(last, std::span(all).last(config.vocab_size), "last row");
  for (const float value : all) EXPECT_TRUE(std::isfinite(value));
}

TEST(BackendFlags, KnowWhichBackendsHaveThem) {
  const BackendOptions all{
      .isa = "portable", .kv = "f16", .act = "bf16", .device = 1, .step = "persistent", .sync = true};
  const auto without = [](std::string_view backend, const BackendOptions& options) {
    std::string said;
    for (const BackendFlag& flag : flags_without_effect(backend, options))
      said += why_without_effect(backend, flag) + (flag.decides ? "!" : "") + "\n";
    return said;
  };
  EXPECT_EQ(without("cpu", all),
            "--device 1: not for backend cpu, only for cuda and cuda-emulated!\n"
            "--step persistent: not for backend cpu, only for cuda and cuda-emulated\n"
            "--sync: not for backend cpu, only for cuda and cuda-emulated\n");
  EXPECT_EQ(without("cuda", all), "--isa portable: not for backend cuda, only for cpu\n");
  EXPECT_EQ(without("cuda", {.act = "int8"}), "--act int8: not for backend cuda, only for cpu!\n");
  EXPECT_EQ(without("reference", {.kv = "bf16"}),
            "--kv bf16: not for backend reference, only for cpu, cuda and cuda-emulated!\n");
  for (const char* backend : {"cpu", "reference", "cuda", "cuda-emulated"}) {
    EXPECT_EQ(without(backend, {.threads = 2, .context = 9, .prefill_chunk = 3}), "") << backend;
  }
}

TEST(BackendFlags, AreCheckedBeforeWeights) {
  const auto check = [](const BackendOptions& options) { check_options(options); };
  expect_error([&] { check({.name = "reference", .isa = "portable"}); }, ExitCode::usage, {"--isa portable"});
  expect_error([&] { check({.name = "cpu", .isa = "mmx"}); }, ExitCode::usage, {"--isa mmx"});
  // A card is asked for, which cannot do it.
  expect_error([&] { check({.act = "int8", .device = 0}); }, ExitCode::usage, {"--act int8", "cuda"});
  EXPECT_NO_THROW(check({.act = "int8"}));
  EXPECT_NO_THROW(check({.isa = "portable", .sync = true}));
  expect_error([&] { check_weight({.act = "int8"}, "w", "BF16"); }, ExitCode::usage, {"w is BF16"});
  EXPECT_NO_THROW(check_weight({.act = "int8"}, "w", "Q8_0"));
  EXPECT_NO_THROW(check_weight({.act = "bf16"}, "w", "BF16"));
}

}  // namespace
}  // namespace fs::engine

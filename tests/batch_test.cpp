// Decode steps that share a pass: what each gives alone, to the bit; and guesses that change no choice.
#include "engine/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/backend.h"
#include "cpu/isa.h"
#include "engine/prompt_lookup.h"
#include "model/quantize.h"
#include "model/synthetic.h"
#include "synthetic_model.h"

namespace fs::engine {
namespace {

using testing::small_config;
using testing::some_tokens;
using testing::synthetic_weights;
using Ids = std::vector<TokenId>;

/// Rows longer than what kernels sum in one go, and heads as wide as Qwen3's.
model::Config wide_config() {
  model::Config config = small_config();
  config.hidden = 640;
  config.intermediate = 1088;
  config.n_layers = 1;
  config.head_dim = 128;
  return config;
}

// --- the backend
// ---------------------------------------------------------------------------------------------------------

/// One row of a pass by itself.
std::vector<float> alone(const Backend& backend, KvCache& cache, TokenId token, std::size_t position) {
  std::vector<float> logits(backend.config().vocab_size);
  Pass pass;
  pass.tokens = {&token, 1};
  pass.first_position = position;
  pass.logits = logits;
  backend.forward(cache, pass);
  return logits;
}

/// Timelines of many depths bring from one to nine rows each, 23 in all; then each goes on by itself with the
/// keys and values that the steps have left.
void expect_steps_as_alone(const Backend& backend, const std::string& what) {
  const std::size_t vocab_size = backend.config().vocab_size;
  const std::size_t depths[] = {0, 5, 63, 120, 128, 260}, rows[] = {1, 9, 1, 9, 2, 1};
  std::deque<std::unique_ptr<KvCache>> together, apart;
  std::vector<Step> steps;
  std::vector<Ids> tokens;
  for (std::size_t i = 0; i < std::size(depths); ++i) {
    const Ids before = some_tokens(depths[i], vocab_size, i);
    tokens.push_back(some_tokens(rows[i] + 1, vocab_size, 100 + i));
    for (auto* caches : {&together, &apart}) {
      caches->push_back(backend.make_cache(depths[i] + rows[i] + 1));
      if (before.empty()) continue;
      Pass prefill;
      prefill.tokens = before;
      prefill.logit_rows = LogitRows::none;
      backend.forward(*caches->back(), prefill);
    }
    for (std::size_t row = 0; row < rows[i]; ++row) {
      steps.push_back({*together.back(), tokens[i][row], depths[i] + row});
    }
  }
  std::vector<float> logits(steps.size() * vocab_size, std::nanf(""));
  backend.run_steps(steps, logits);
  std::size_t at = 0;
  for (std::size_t i = 0; i < std::size(depths); ++i) {
    for (std::size_t row = 0; row < rows[i]; ++row, ++at) {
      const auto want = alone(backend, *apart[i], tokens[i][row], depths[i] + row);
      const auto got = std::span(logits).subspan(at * vocab_size, vocab_size);
      ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin()))
          << what << ": depth " << depths[i] << " row " << row;
    }
    const std::size_t end = depths[i] + rows[i];
    ASSERT_EQ(alone(backend, *together[i], tokens[i].back(), end),
              alone(backend, *apart[i], tokens[i].back(), end))
        << what << ": after depth " << depths[i];
  }
}

class StepsOfEveryIsa : public ::testing::TestWithParam<const cpu::Kernels*> {};
INSTANTIATE_TEST_SUITE_P(Cpu, StepsOfEveryIsa, ::testing::ValuesIn(cpu::available_kernels()),
                         [](const auto& isa) { return std::string(isa.param->name); });

TEST_P(StepsOfEveryIsa, GiveWhatEachGivesAloneToTheBit) {
  using model::Dtype;
  struct Way {
    Dtype dtype = Dtype::bf16, kv = Dtype::f32;
    cpu::Activations act = cpu::Activations::f32;
  };
  const Way ways[] = {{Dtype::f32},
                      {Dtype::f16},
                      {Dtype::bf16},
                      {Dtype::q8_0},
                      {Dtype::int4},
                      {Dtype::bf16, Dtype::f16},
                      {Dtype::bf16, Dtype::bf16},
                      {Dtype::bf16, Dtype::f32, cpu::Activations::bf16},
                      {Dtype::q8_0, Dtype::f32, cpu::Activations::int8},
                      {Dtype::int4, Dtype::f32, cpu::Activations::int8}};
  ThreadPool pool(2);
  for (const model::Config& config : {model::synthetic_config("tiny-odd"), wide_config()}) {
    const model::Weights stored = synthetic_weights(config);
    for (const Way& way : ways) {
      const auto weights = model::quantize(config, stored, way.dtype, pool);
      const auto backend = cpu::make_backend(
          config, weights, {.threads = 2, .isa = GetParam()->name, .kv = way.kv, .act = way.act});
      EXPECT_GT(backend->preferred_steps(), 1U);
      expect_steps_as_alone(
          *backend, fmt::format("hidden {}, {}, KV {}, activations {}", config.hidden, model::name(way.dtype),
                                model::name(way.kv), static_cast<int>(way.act)));
    }
  }
}

TEST(Steps, OfABackendThatSharesNothing) {
  const model::Config config = small_config();
  for (const char* name : {"reference", "cpu"}) {
    const auto backend = make_backend({.name = name, .threads = 2}, config, synthetic_weights(config));
    expect_steps_as_alone(*backend, name);
  }
}

// --- sessions
// ---------------------------------------------------------------------------------------------------------

class BatchOf : public ::testing::TestWithParam<const char*> {
 protected:
  const model::Config config = model::synthetic_config("tiny-odd");
  const std::unique_ptr<Backend> backend =
      make_backend({.name = GetParam(), .threads = 2}, config, synthetic_weights(config));

  /// `count` choices after `prompt`, one after another.
  std::vector<Choice> one_by_one(const Ids& prompt, const Sampler& sampler, std::size_t count) const {
    Session session(*backend, prompt.size() + count);
    std::vector<Choice> choices;
    for (Ids next = prompt; choices.size() < count; next = {choices.back().id}) {
      choices.push_back(session.next(next, sampler, {1, {}}));
    }
    return choices;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, BatchOf, ::testing::Values("reference", "cpu"),
                         [](const auto& name) { return std::string(name.param); });

void expect_same(std::span<const Choice> got, std::span<const Choice> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].id, want[i].id) << what << " choice " << i;
    ASSERT_EQ(got[i].log_probability, want[i].log_probability) << what << " choice " << i;
  }
}

const std::vector<SamplerOptions>& samplers() {
  static const std::vector<SamplerOptions> all = {
      {},
      {.temperature = 1.5F, .seed = 7},
      {.temperature = 0.9F, .top_k = 20, .top_p = 0.9F, .min_p = 0.01F, .seed = 8},
      {.repetition_penalty = 1.3F, .presence_penalty = 0.5F},
      {.temperature = 1, .repetition_penalty = 0.8F, .presence_penalty = -1, .seed = 9}};
  return all;
}

TEST_P(BatchOf, SequencesChooseWhatEachChoosesAlone) {
  struct Running {
    Ids prompt;
    Sampler sampler;
    Session session;
    std::vector<Choice> choices;
  };
  constexpr std::size_t count = 12;
  std::deque<Running> all;
  for (std::size_t i = 0; i < samplers().size(); ++i) {
    const Ids prompt = some_tokens(1 + 30 * i, config.vocab_size, i);
    const Sampler sampler(samplers()[i], config.vocab_size);
    all.push_back({prompt, sampler, Session(*backend, prompt.size() + count), {}});
    all.back().choices.push_back(all.back().session.next(prompt, sampler, {1, {}}));
  }
  Batch batch(*backend);
  for (std::size_t step = 1; step < count; ++step) {
    std::vector<Turn> turns;
    for (Running& one : all) turns.push_back({one.session, {&one.choices.back().id, 1}});
    batch.forward(turns);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto chosen = batch.choose(i, all[i].sampler);
      ASSERT_EQ(chosen.size(), 1U);
      all[i].choices.push_back(chosen[0]);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    expect_same(all[i].choices, one_by_one(all[i].prompt, all[i].sampler, count),
                fmt::format("sampler {}", i));
  }
}

/// Guesses that are right up to a point, which wanders: every choice and every log-probability is the one of
/// single steps, and what was wrong leaves nothing behind.
TEST_P(BatchOf, GuessesChangeNoChoice) {
  constexpr std::size_t count = 40, most = 7;
  for (std::size_t s = 0; s < samplers().size(); ++s) {
    const Sampler sampler(samplers()[s], config.vocab_size);
    for (const std::size_t depth : {1U, 110U}) {  // from there across the border of a block of the cache
      const Ids prompt = some_tokens(depth, config.vocab_size, 3);
      const auto want = one_by_one(prompt, sampler, count);
      Session session(*backend, prompt.size() + count);
      Batch batch(*backend);
      std::vector<Choice> got = {session.next(prompt, sampler, {1, {}})};
      for (std::size_t round = 0; got.size() < count; ++round) {
        const std::size_t guesses = std::min({round % (most + 1), count - got.size() - 1}),
                          right = std::min(guesses, round * 5 % (most + 1));
        Ids tokens = {got.back().id};
        for (std::size_t i = 0; i < guesses; ++i) {
          const TokenId id = want[got.size() + i].id;
          tokens.push_back(i < right ? id : (id + 1) % static_cast<TokenId>(config.vocab_size));
        }
        const Turn turn{session, tokens};
        batch.forward({&turn, 1});
        const auto chosen = batch.choose(0, sampler);
        ASSERT_EQ(chosen.size(), right + 1);
        ASSERT_EQ(session.position(), prompt.size() + got.size() + right);
        got.insert(got.end(), chosen.begin(), chosen.end());
      }
      expect_same(got, want, fmt::format("sampler {}, depth {}", s, depth));
    }
  }
}

TEST_P(BatchOf, RefusesWhatASessionRefusesAndRunsNothing) {
  Session a(*backend, 4), b(*backend, 4);
  a.forward(Ids{1, 2, 3});
  b.forward(Ids{1, 2});
  Batch batch(*backend);
  const auto expect_refused = [&](const Ids& of_a, const Ids& of_b, const char* part) {
    try {
      const std::vector<Turn> turns = {{a, of_a}, {b, of_b}};
      batch.forward(turns);
      ADD_FAILURE() << "no error about " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_EQ(a.position(), 3U);
    EXPECT_EQ(b.position(), 2U);
  };
  expect_refused({1}, {1, 2, 3}, "the context is full");
  expect_refused({1, 2}, {1}, "the context is full");
  expect_refused({1}, {static_cast<TokenId>(config.vocab_size)}, "this model has");
  expect_refused({}, {1}, "empty");
  const Ids tokens = {5, 6};
  const Turn turn{b, tokens};
  batch.forward({&turn, 1});
  EXPECT_EQ(b.position(), 4U);
  EXPECT_EQ(b.tokens().back(), 6U);
}

TEST(Batch, OnlyLogitsThatDecideHaveToBeFinite) {
  const model::Config config = small_config();
  model::Weights weights = synthetic_weights(config);
  const auto table = std::make_shared<std::vector<std::byte>>(
      weights.embed_tokens.data, weights.embed_tokens.data + config.vocab_size * config.hidden * 2);
  const std::uint16_t nan = 0x7FC0;
  std::memcpy(table->data() + 40 * config.hidden * 2, &nan,
              sizeof nan);  // token 40; lm_head keeps the good one
  weights.embed_tokens.data = table->data();
  weights.storage.push_back(table);
  const auto backend = make_backend({.name = "cpu", .threads = 1}, config, weights);
  const Sampler greedy({}, config.vocab_size);
  Session session(*backend, 10);
  Batch batch(*backend);
  const TokenId first = session.next(Ids{1, 2}, greedy, {1, {}}).id;
  const Ids bad = {first, 40};
  Turn turn{session, bad};
  batch.forward({&turn, 1});
  ASSERT_EQ(batch.choose(0, greedy).size(), 1U);  // 40 is not what it chooses
  EXPECT_EQ(session.position(), 3U);
  const Ids worse = {40};
  const Turn last{session, worse};
  batch.forward({&last, 1});
  try {
    batch.choose(0, greedy);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("position 3"), std::string::npos) << error.what();
  }
}

// --- guesses
// ---------------------------------------------------------------------------------------------------------

TEST(PromptLookup, ContinuesTheLongestMatchAndOfEqualOnesTheLatest) {
  EXPECT_EQ(look_up(Ids{1, 2, 3, 4, 5, 1, 2, 3}, 7), (Ids{4, 5, 1}));  // as many as agree
  EXPECT_EQ(look_up(Ids{1, 2, 3, 4, 5, 1, 2, 3}, 2), (Ids{4, 5}));
  EXPECT_EQ(look_up(Ids{1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3}, 7), (Ids{7, 9, 2}));  // three agree, then two
  EXPECT_EQ(look_up(Ids{2, 3, 7, 4, 2, 3, 8, 5, 2, 3}, 7), (Ids{8, 5}));
  EXPECT_EQ(look_up(Ids{1, 2, 3, 9, 3}, 7), Ids{});  // one token says little
  EXPECT_EQ(look_up(Ids{1, 2, 3, 4}, 7), Ids{});
  EXPECT_EQ(look_up(Ids{1}, 7), Ids{});
  EXPECT_EQ(look_up(Ids{}, 7), Ids{});
  EXPECT_EQ(look_up(Ids{1, 2, 1, 2}, 0), Ids{});
}

TEST(PromptLookup, RepeatsWhatRepeats) {
  EXPECT_EQ(look_up(Ids{5, 5, 5, 5, 5}, 7), (Ids{5, 5, 5, 5}));
  EXPECT_EQ(look_up(Ids{1, 2, 1, 2, 1, 2, 1}, 4), (Ids{2, 1, 2, 1}));
}

}  // namespace
}  // namespace fs::engine

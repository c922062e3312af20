// --step persistent: a decode step's layers in one cooperative kernel, held to the graph of kernels to the
// bit.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "build.h"
#include "cuda/backend.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "model/checkpoint.h"
#include "model/locate.h"
#include "model/quantize.h"
#include "model/synthetic.h"
#include "schedules.h"
#include "synthetic_model.h"

#if defined(FS_EMULATED)
#include "emulator/stand_in.h"
#endif

namespace fs::cuda::FS_GPU_BUILD {
namespace {

using engine::Backend;
using engine::Session;
using testing::every_schedule;
using testing::small_config;
using testing::some_tokens;
using testing::synthetic_weights;
using testing::UnderSchedule;

constexpr model::Dtype every_kv[] = {model::Dtype::f32, model::Dtype::f16, model::Dtype::bf16};

/// As small as a card can be, so that blocks have to take several rounds of rows.
class CudaPersistent : public ::testing::Test {
 protected:
#if defined(FS_EMULATED)
  CudaPersistent() { gpu::emulator::stand_in().cards[0].multiprocessors = 1; }
  ~CudaPersistent() override { gpu::emulator::stand_in() = {}; }
#endif
};

struct Pair {
  std::unique_ptr<Backend> graph, persistent;
};
Pair both(const model::Config& config, const model::Weights& weights, model::Dtype kv = model::Dtype::f32) {
  Pair made{make_backend(config, weights, {.kv = kv}),
            make_backend(config, weights, {.kv = kv, .persistent = true})};
  EXPECT_EQ(made.graph->step(), "graph");
  EXPECT_EQ(made.persistent->step(), "persistent");
  return made;
}
Pair both(const model::Config& config) { return both(config, synthetic_weights(config)); }

/// Logits after each of the last `steps` tokens, which run one at a time.
std::vector<float> stepwise(const Backend& backend, std::span<const TokenId> tokens, std::size_t steps) {
  Session session(backend, tokens.size());
  std::vector<float> all;
  const std::size_t before = tokens.size() - steps;
  if (before > 0) session.forward(tokens.first(before));
  for (std::size_t i = before; i < tokens.size(); ++i) {
    const auto logits = session.forward(tokens.subspan(i, 1));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

std::string differs(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return "sizes differ";
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(got[i] == want[i])) return fmt::format("value {}: {} instead of {}", i, got[i], want[i]);
  }
  return "";
}

void expect_every_format_the_same(const model::Config& config, const model::Weights& stored,
                                  std::size_t tokens, std::size_t steps) {
  ThreadPool pool(2);
  std::size_t combination = 0;
  for (const model::Dtype dtype :
       {model::Dtype::bf16, model::Dtype::f16, model::Dtype::f32, model::Dtype::q8_0, model::Dtype::int4}) {
    const model::Dtype kv = every_kv[combination++ % std::size(every_kv)];  // neither depends on the other
    const Pair made = both(config, model::quantize(config, stored, dtype, pool), kv);
    const auto ids = some_tokens(tokens, config.vocab_size);
    EXPECT_EQ(differs(stepwise(*made.persistent, ids, steps), stepwise(*made.graph, ids, steps)), "")
        << model::name(dtype) << " kv " << model::name(kv);
  }
}

TEST_F(CudaPersistent, IsTheGraphToTheBitInEveryFormat) {
  const model::Config config = model::synthetic_config("tiny-odd");
  expect_every_format_the_same(config, synthetic_weights(config), 70, 4);  // over the end of a chunk
}

TEST_F(CudaPersistent, IsTheGraphToTheBitOnTheBundledModel) {
  const auto checkpoint = model::Checkpoint::open(model::locate(std::string(FS_SOURCE_DIR "/golden/tiny")));
  ThreadPool pool(2);
  expect_every_format_the_same(checkpoint.config(), checkpoint.load(pool), 5, 3);
}

TEST_F(CudaPersistent, IsTheGraphToTheBitForOtherHeads) {
  for (const std::size_t group : {1U, 2U, 3U, 8U}) {
    for (const std::size_t head_dim : {2U, 128U}) {
      model::Config config = small_config();
      config.n_kv_heads = 2;
      config.n_q_heads = 2 * group;
      config.head_dim = head_dim;
      const Pair made = both(config);
      const auto ids = some_tokens(6, config.vocab_size);
      EXPECT_EQ(differs(stepwise(*made.persistent, ids, 3), stepwise(*made.graph, ids, 3)), "")
          << "group " << group << " head_dim " << head_dim;
    }
  }
}

TEST_F(CudaPersistent, IsTheSameUnderEverySchedule) {
  const model::Config config = small_config();
  const auto ids = some_tokens(70, config.vocab_size);
  const Pair made = both(config);
  const auto want = stepwise(*made.graph, ids, 3);
  for (const auto& schedule : every_schedule()) {
    const UnderSchedule under(schedule);
    EXPECT_EQ(differs(stepwise(*made.persistent, ids, 3), want), "") << schedule.name;
  }
}

TEST_F(CudaPersistent, RunsTheSmallestShapes) {  // few enough threads for ThreadSanitizer
  const model::Config config{.vocab_size = 10,
                             .hidden = 16,
                             .intermediate = 12,
                             .n_layers = 1,
                             .n_q_heads = 2,
                             .n_kv_heads = 1,
                             .head_dim = 4,
                             .max_positions = 10,
                             .rms_norm_eps = 1e-6,
                             .rope_theta = 1e4,
                             .tie_word_embeddings = true};
  const Pair made = both(config);
  const auto ids = some_tokens(2, config.vocab_size);
  EXPECT_EQ(differs(stepwise(*made.persistent, ids, 2), stepwise(*made.graph, ids, 2)), "");
}

/// The barrier goes on counting, whatever runs in between: watched steps, other sessions, more room.
TEST_F(CudaPersistent, GoesOnAfterGrowthRewindsAndOtherSessions) {
  const model::Config config = small_config();
  const Pair made = both(config);
  const auto ids = some_tokens(259, config.vocab_size);
  EXPECT_EQ(differs(stepwise(*made.persistent, ids, 6), stepwise(*made.graph, ids, 6)), "");  // grows at 256
  Session straight(*made.graph, 250), wound(*made.persistent, 250), other(*made.persistent, 250);
  straight.forward(std::span(ids).first(80));
  wound.forward(std::span(ids).first(80));
  for (std::size_t i = 0; i < 3; ++i) wound.forward(std::span(ids).subspan(100 + i, 1));
  wound.rewind(80);
  for (std::size_t i = 80; i < 84; ++i) {
    other.forward(std::span(ids).subspan(i, 1));
    const auto want_span = straight.forward(std::span(ids).subspan(i, 1));
    const std::vector<float> want(want_span.begin(), want_span.end());
    const auto got = wound.forward(std::span(ids).subspan(i, 1));
    EXPECT_EQ(differs({got.begin(), got.end()}, want), "") << i;
  }
}

TEST_F(CudaPersistent, ChoosesTheSameTokensAhead) {
  const model::Config config = small_config();
  const Pair made = both(config);
  const engine::Sampler sampler({.temperature = 1, .top_k = 20, .seed = 7}, config.vocab_size);
  const auto chosen = [&](const Backend& backend) {
    Session session(backend, 60);
    std::vector<TokenId> next = some_tokens(9, config.vocab_size), picked;
    while (picked.size() < 20) {
      picked.push_back(session.next(next, sampler, {20 - picked.size(), {}}).id);
      next = {picked.back()};
    }
    return picked;
  };
  EXPECT_EQ(chosen(*made.persistent), chosen(*made.graph));
}

TEST_F(CudaPersistent, WaitsForEachKernelWhereItIsToldTo) {
  const model::Config config = small_config();
  const auto ids = some_tokens(9, config.vocab_size);
  const auto sync = make_backend(config, synthetic_weights(config), {.persistent = true, .sync = true});
  EXPECT_EQ(differs(stepwise(*sync, ids, 2), stepwise(*both(config).graph, ids, 2)), "");
}

/// What a backend that was asked for one kernel says of its steps; they give the graph's values all the same.
std::string said_of(const model::Config& config, const model::Weights& weights) {
  Options options;
  options.persistent = true;
  std::string said;
  options.notice = [&](const std::string& text) { said = text; };
  const auto made = make_backend(config, weights, options), graph = make_backend(config, weights, {});
  const auto ids = some_tokens(4, config.vocab_size);
  EXPECT_EQ(differs(stepwise(*made, ids, 2), stepwise(*graph, ids, 2)), "") << said;
  return fmt::format("{}: {}", made->step(), said);
}

TEST_F(CudaPersistent, FallsBackToTheGraphAndSaysWhy) {
  const std::string kernels = "; decode steps run as a graph of kernels";
  model::Config config = small_config();
  config.head_dim = 130;
  EXPECT_EQ(said_of(config, synthetic_weights(config)),
            "graph: --step persistent: heads have 130 values, it takes 128" + kernels);
  config = small_config();
  model::Weights weights = synthetic_weights(config);
  ThreadPool pool(2);
  const model::Weights other = model::quantize(config, weights, model::Dtype::q8_0, pool);
  weights.layers[1].down_proj = other.layers[1].down_proj;
  EXPECT_EQ(said_of(config, weights), "graph: --step persistent: weights are of several formats" + kernels);
#if defined(FS_EMULATED)
  EXPECT_EQ(said_of(config, synthetic_weights(config)),
            "persistent: a decode step's layers run in one kernel of 8 blocks");
  gpu::emulator::stand_in().cards[0].multiprocessors = 0;
  EXPECT_EQ(said_of(config, synthetic_weights(config)),
            "graph: --step persistent: the device cannot keep its blocks running at once" + kernels);
#endif
}

}  // namespace
}  // namespace fs::cuda::FS_GPU_BUILD

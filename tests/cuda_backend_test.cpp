#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend_checks.h"
#include "base/error.h"
#include "build.h"
#include "cuda/backend.h"
#include "cuda/device_weights.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "model/checkpoint.h"
#include "model/locate.h"
#include "model/quantize.h"
#include "model/synthetic.h"
#include "reference/backend.h"
#include "schedules.h"
#include "synthetic_model.h"

#if defined(FS_EMULATED)
#include "emulator/memory.h"
#include "emulator/stand_in.h"
#endif

namespace fs::cuda::FS_GPU_BUILD {
namespace {

using engine::Backend;
using engine::Session;
using engine::TapPoint;
using testing::every_schedule;
using testing::expect_close;
using testing::expect_same_taps;
using testing::greedy;
using testing::small_config;
using testing::some_tokens;
using testing::synthetic_weights;
using testing::TapLog;
using testing::taps_of;
using testing::UnderSchedule;

std::unique_ptr<Backend> cuda_of(const model::Config& config) {
  return make_backend(config, synthetic_weights(config), {});
}
std::unique_ptr<Backend> reference_of(const model::Config& config) {
  return reference::make_backend(config, synthetic_weights(config), 2);
}

/// Logits after `tokens`, the last `steps` of them one at a time and unwatched: through the recorded graph.
std::vector<float> stepwise(const Backend& backend, std::span<const TokenId> tokens, std::size_t steps) {
  Session session(backend, tokens.size());
  std::vector<float> all;
  const auto keep = [&](std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
  };
  keep(session.forward(tokens.first(tokens.size() - steps)));
  for (std::size_t i = tokens.size() - steps; i < tokens.size(); ++i)
    keep(session.forward(tokens.subspan(i, 1)));
  return all;
}

TEST(CudaBackend, MatchesTheReferenceAtEveryTap) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto got = cuda_of(config), want = reference_of(config);
  for (const std::size_t rows : {1U, 2U, 5U, 17U, 64U, 129U}) {
    const auto tokens = some_tokens(rows, config.vocab_size);
    expect_same_taps(taps_of(*got, {}, tokens), taps_of(*want, {}, tokens), std::to_string(rows));
  }
}

TEST(CudaBackend, MatchesTheReferenceOnQuantizedWeights) {
  const model::Config config = model::synthetic_config("tiny-odd");
  ThreadPool pool(2);
  for (const model::Dtype dtype : {model::Dtype::q8_0, model::Dtype::int4}) {
    const model::Weights weights = model::quantize(config, synthetic_weights(config), dtype, pool);
    const auto got = make_backend(config, weights, {}), want = reference::make_backend(config, weights, 2);
    for (const std::size_t rows : {1U, 2U, 5U, 17U, 64U, 129U}) {
      const auto tokens = some_tokens(rows, config.vocab_size);
      expect_same_taps(taps_of(*got, {}, tokens), taps_of(*want, {}, tokens),
                       fmt::format("{} {} rows", model::name(dtype), rows));
    }
  }
}

TEST(CudaBackend, KeepsKeysAndValuesInTheFormatAskedFor) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto want = reference_of(config);
  for (const model::Dtype kv : {model::Dtype::f16, model::Dtype::bf16}) {
    const auto got = make_backend(config, synthetic_weights(config), {.kv = kv});
    EXPECT_EQ(2 * got->kv_position_bytes(), want->kv_position_bytes());
    for (const std::size_t rows : {1U, 2U, 5U, 17U, 64U, 129U}) {
      testing::expect_kv_format(*got, *want, kv, rows);
    }
  }
}

TEST(CudaBackend, MatchesTheReferenceBehindAPrefix) {  // across chunks of the decode attention, and growth
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto got = cuda_of(config), want = reference_of(config);
  for (const std::size_t prefix : {64U, 300U}) {
    const auto before = some_tokens(prefix, config.vocab_size, 5);
    for (const std::size_t rows : {1U, 17U}) {
      const auto tokens = some_tokens(rows, config.vocab_size);
      expect_same_taps(taps_of(*got, before, tokens), taps_of(*want, before, tokens),
                       fmt::format("prefix {} rows {}", prefix, rows));
    }
  }
}

/// --act bf16: every product of a prefill rounds its input, so the taps behind one err by the rounding, at
/// most 2⁻⁹ of each input; a decode step is exact.
TEST(CudaBackend, RoundsTheActivationsOfAPrefillWhereItMay) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto fast = make_backend(config, synthetic_weights(config), {.fast = true});
  const auto exact = cuda_of(config), want = reference_of(config);
  const auto tokens = some_tokens(17, config.vocab_size);
  const TapLog rounded = taps_of(*fast, {}, tokens), right = taps_of(*want, {}, tokens);
  ASSERT_EQ(rounded.entries.size(), right.entries.size());
  for (std::size_t i = 0; i < right.entries.size(); ++i) {
    const auto &got = rounded.entries[i].values, &wanted = right.entries[i].values;
    double squares = 0, differences = 0;
    for (std::size_t j = 0; j < wanted.size(); ++j) {
      squares += double{wanted[j]} * wanted[j];
      differences += (double{got[j]} - wanted[j]) * (double{got[j]} - wanted[j]);
    }
    const double relative = std::sqrt(differences / squares);
    const bool before_any_product = i < 2;  // embed, attn_norm
    EXPECT_LT(relative, before_any_product ? 1e-6 : 0.03) << right.entries[i].key;
    if (gpu::tensor_cores() && !before_any_product) {
      EXPECT_GT(relative, 1e-4) << right.entries[i].key;
    }
  }
  Session one(*fast, 1), other(*exact, 1);
  const auto a = one.forward(std::span(tokens).first(1)), b = other.forward(std::span(tokens).first(1));
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
}

TEST(CudaBackend, MatchesTheReferenceForOtherShapes) {
  for (const std::size_t group : {1U, 2U, 3U, 8U}) {
    for (const std::size_t head_dim : {2U, 20U, 130U}) {
      model::Config config = small_config();
      config.n_kv_heads = 2;
      config.n_q_heads = 2 * group;
      config.head_dim = head_dim;
      config.tie_word_embeddings = group % 2 == 0;
      const auto got = cuda_of(config), want = reference_of(config);
      for (const std::size_t rows : {1U, 5U}) {
        const auto tokens = some_tokens(rows, config.vocab_size);
        expect_same_taps(taps_of(*got, {}, tokens), taps_of(*want, {}, tokens),
                         fmt::format("group {} head_dim {} rows {}", group, head_dim, rows));
      }
    }
  }
}

TEST(CudaBackend, ReplaysItsGraphToTheSameValues) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto tokens = some_tokens(259, config.vocab_size);
  const auto cuda = cuda_of(config);
  const auto got = stepwise(*cuda, tokens, 6);  // over the first growth of the cache, at 256
  expect_close(got, stepwise(*reference_of(config), tokens, 6), "6 steps");
  EXPECT_EQ(stepwise(*cuda, tokens, 6), got);  // bit for bit
}

TEST(CudaBackend, IsTheSameUnderEverySchedule) {
  const model::Config config = small_config();
  const auto tokens = some_tokens(20, config.vocab_size);
  const auto want = stepwise(*cuda_of(config), tokens, 2);
  for (const auto& schedule : every_schedule()) {
    const UnderSchedule under(schedule);
    EXPECT_EQ(stepwise(*cuda_of(config), tokens, 2), want) << schedule.name;
  }
}

TEST(CudaBackend, WatchingChangesNoBit) {
  const model::Config config = small_config();
  const auto tokens = some_tokens(9, config.vocab_size);
  for (const model::Dtype kv : {model::Dtype::f32, model::Dtype::f16, model::Dtype::bf16}) {
    const auto cuda = make_backend(config, synthetic_weights(config), {.kv = kv});
    const auto unwatched = stepwise(*cuda, tokens, 1);
    TapLog log;
    engine::ForwardOptions options;
    options.taps = &log;
    Session session(*cuda, 9);
    session.forward(std::span(tokens).first(8));
    const auto watched = session.forward(std::span(tokens).last(1), options);
    EXPECT_TRUE(std::equal(watched.begin(), watched.end(),
                           unwatched.end() - static_cast<std::ptrdiff_t>(watched.size())))
        << model::name(kv);
  }
}

TEST(CudaBackend, GivesTheSameLogitsForAnyChunking) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto tokens = some_tokens(80, config.vocab_size);
  const auto collect = [&](const Backend& backend, std::size_t chunk) {
    std::vector<float> all;
    engine::ForwardOptions options;
    options.chunk = chunk;
    options.on_logits = [&](std::size_t, std::span<const float> row) {
      all.insert(all.end(), row.begin(), row.end());
    };
    Session(backend, tokens.size()).forward(tokens, options);
    return all;
  };
  const auto want = collect(*reference_of(config), 32);
  const auto cuda = cuda_of(config);
  for (const std::size_t chunk : {7U, 64U, 80U}) {
    expect_close(collect(*cuda, chunk), want, fmt::format("chunk {}", chunk));
  }
}

TEST(CudaBackend, RunsPromptsInChunksOfTheSizeAskedFor) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto tokens = some_tokens(70, config.vocab_size);
  const auto want = stepwise(*reference_of(config), tokens, 0);
  for (const std::size_t chunk : {1U, 3U, 64U}) {
    const auto cuda = make_backend(config, synthetic_weights(config), {.prefill_chunk = chunk});
    EXPECT_EQ(cuda->preferred_chunk(), chunk);
    expect_close(stepwise(*cuda, tokens, 0), want, fmt::format("chunk {}", chunk));
  }
}

TEST(CudaBackend, RewindsAsIfTheRestHadNeverBeen) {
  const model::Config config = small_config();
  const auto cuda = cuda_of(config);
  const auto tokens = some_tokens(90, config.vocab_size), other = some_tokens(100, config.vocab_size, 9);
  Session straight(*cuda, 250), wound(*cuda, 250);
  straight.forward(std::span(tokens).first(80));
  wound.forward(std::span(tokens).first(80));
  wound.forward(other);
  wound.rewind(80);
  for (std::size_t i = 80; i < 84; ++i) {  // two sessions in turn: each has a graph of its own
    const auto want_span = straight.forward(std::span(tokens).subspan(i, 1));
    const std::vector<float> want(want_span.begin(), want_span.end());
    const auto got = wound.forward(std::span(tokens).subspan(i, 1));
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end())) << i;
  }
}

TEST(CudaBackend, RunsToTheEndOfTheContext) {
  const model::Config config = small_config();  // 300 positions
  const auto cuda = cuda_of(config);
  const auto tokens = some_tokens(300, config.vocab_size);
  Session session(*cuda, 300);
  session.forward(std::span(tokens).first(298));
  session.forward(std::span(tokens).subspan(298, 1));
  session.forward(std::span(tokens).subspan(299, 1));
  EXPECT_THROW(session.forward(std::span(tokens).first(1)), Error);
}

TEST(CudaBackend, GoesOnWithTheValuesThatAnObserverLeaves) {
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto got = cuda_of(config), want = reference_of(config);
  for (const std::size_t rows : {1U, 17U}) {
    const auto tokens = some_tokens(rows, config.vocab_size);
    for (std::size_t point = 0; point + 1 < engine::tap_point_count; ++point) {  // nothing follows the logits
      const auto run = [&](const Backend& backend) {
        TapLog log;
        log.change = [&](const engine::Tap& tap) {
          if (tap.point != static_cast<TapPoint>(point) || tap.layer != 0) return;
          for (std::size_t i = 0; i < tap.values.size(); ++i) {
            tap.values[i] = static_cast<float>(i % 7) * 0.3F - 0.8F;
          }
        };
        engine::ForwardOptions options;
        options.taps = &log;
        Session session(backend, rows + 1);
        session.forward(tokens, options);
        session.forward(std::span(tokens).first(1), options);  // what was written went into the cache
        return log;
      };
      expect_same_taps(run(*got), run(*want),
                       fmt::format("{} replaced, {} rows", engine::name(static_cast<TapPoint>(point)), rows));
    }
  }
}

/// `count` tokens after `next`, by Session::next.
std::vector<TokenId> sampled(Session& session, const engine::Sampler& sampler, std::vector<TokenId> next,
                             std::size_t count, std::span<const TokenId> stop_ids = {}) {
  std::vector<TokenId> picked;
  while (picked.size() < count) {
    picked.push_back(session.next(next, sampler, {count - picked.size(), stop_ids}).id);
    next = {picked.back()};
  }
  return picked;
}

/// The same, chosen by the host.
std::vector<TokenId> picked_by_host(Session& session, const engine::Sampler& sampler,
                                    std::vector<TokenId> next, std::size_t count) {
  std::vector<TokenId> picked;
  while (picked.size() < count) {
    const auto logits = session.forward(next);  // before tokens() is asked
    picked.push_back(sampler.pick(logits, session.tokens()));
    next = {picked.back()};
  }
  return picked;
}

TEST(CudaBackend, ChoosesTheTokensThatTheHostWould) {
  const model::Config config = small_config();
  const auto cuda = cuda_of(config);
  const auto prompt = some_tokens(9, config.vocab_size);
  std::vector<engine::SamplerOptions> settings(4);
  settings[1] = {.temperature = 1, .top_k = 20, .top_p = 0.95F, .seed = 7};
  settings[2] = {.temperature = 3, .top_k = 40, .min_p = 0.02F, .seed = 8};
  settings[3] = {.temperature = 1, .seed = 9};  // for the host
  for (const engine::SamplerOptions& options : settings) {
    const engine::Sampler sampler(options, config.vocab_size - 2);
    Session host(*cuda, 60), device(*cuda, 60);
    const auto want = picked_by_host(host, sampler, prompt, 40);
    EXPECT_EQ(sampled(device, sampler, prompt, 40), want);
    EXPECT_EQ(device.position(), host.position());
    // A stop id, a rewind, another token than the one chosen, another sampler: what was run ahead is not
    // used.
    device.rewind(prompt.size());
    const std::vector<TokenId> stops = {want[4]};
    EXPECT_EQ(sampled(device, sampler, {want[0]}, 20, stops),
              std::vector<TokenId>(want.begin() + 1, want.begin() + 21));
    device.rewind(prompt.size());
    sampled(device, sampler, {want[0]}, 1);
    host.rewind(prompt.size() + 1);
    const engine::Sampler greedy({}, config.vocab_size);
    EXPECT_EQ(sampled(device, greedy, {TokenId{3}}, 5), picked_by_host(host, greedy, {TokenId{3}}, 5));
  }
}

TEST(CudaBackend, ChoosesToTheEndOfTheContext) {
  const model::Config config = small_config();
  const auto cuda = cuda_of(config);
  const engine::Sampler greedy({}, config.vocab_size);
  Session host(*cuda, 20), device(*cuda, 20);
  const auto prompt = some_tokens(3, config.vocab_size);
  EXPECT_EQ(sampled(device, greedy, prompt, 18), picked_by_host(host, greedy, prompt, 18));
  EXPECT_THROW(device.next(std::span(prompt).first(1), greedy, {}), Error);
}

TEST(CudaBackend, PicksTheReferencesTokensOnTheBundledModel) {
  const auto checkpoint = model::Checkpoint::open(model::locate(std::string(FS_SOURCE_DIR "/golden/tiny")));
  ThreadPool pool(2);
  const model::Weights weights = checkpoint.load(pool);
  const auto cuda = make_backend(checkpoint.config(), weights, {});
  const auto reference = reference::make_backend(checkpoint.config(), weights, 2);
  const std::vector<TokenId> prompt = {272, 301, 290, 1084, 270};  // "The capital of France is"
  EXPECT_EQ(greedy(*cuda, prompt, 8), greedy(*reference, prompt, 8));
  expect_same_taps(taps_of(*cuda, prompt, std::span(prompt).first(1)),
                   taps_of(*reference, prompt, std::span(prompt).first(1)), "a step");
  expect_same_taps(taps_of(*cuda, {}, prompt), taps_of(*reference, {}, prompt), "a prompt");
}

TEST(CudaBackend, TimesEachKernelOfAStepAndLeavesTheSessionAsItWas) {
  const model::Config config = small_config();
  const std::size_t layers = config.n_layers;
  using Launches = std::vector<std::pair<std::string, std::size_t>>;
  const Launches graph = {{"embed", 1},         {"norm_qkv", layers}, {"attention_decode", layers},
                          {"attn_out", layers}, {"swiglu", layers},   {"mlp_down", layers},
                          {"head", 1}};
  const Launches persistent = {{"embed", 1}, {"decode_layers", 1}, {"head", 1}};
  const auto tokens = some_tokens(9, config.vocab_size);
  for (const bool as_one : {false, true}) {
    for (const bool sync : {false, true}) {
      const auto cuda = make_backend(config, synthetic_weights(config), {.persistent = as_one, .sync = sync});
      if (as_one && cuda->step() != "persistent") continue;  // this device has no room for it, as it says
      Session session(*cuda, 10);
      session.forward(std::span(tokens).first(8));
      Launches found;
      for (const engine::KernelTime& kernel : session.time_kernels(3)) {
        found.emplace_back(kernel.name, kernel.launches);
        EXPECT_EQ(kernel.seconds.size(), 3U);
        for (const double seconds : kernel.seconds) EXPECT_GT(seconds, 0) << kernel.name;
        EXPECT_GT(kernel.bytes, 0) << kernel.name;
      }
      EXPECT_EQ(found, as_one ? persistent : graph) << sync;
      EXPECT_EQ(session.position(), 8U);
      const auto logits = session.forward(std::span(tokens).last(1));
      const auto want = stepwise(*cuda, tokens, 1);
      EXPECT_TRUE(std::equal(logits.begin(), logits.end(), want.end() - config.vocab_size)) << as_one << sync;
      session.forward(std::span(tokens).last(1));
      EXPECT_THROW(session.time_kernels(1), Error);  // no position is left
    }
  }
  EXPECT_GT(cuda_of(config)->copy_rate(), 1e6);
}

#if defined(FS_EMULATED)
TEST(CudaBackend, CopiesNothingWhereThereIsNoRoom) {
  const auto cuda = cuda_of(small_config());
  gpu::emulator::stand_in().cards[0].memory -= gpu::free_memory() - 1000;
  EXPECT_EQ(cuda->copy_rate(), 0);
  gpu::emulator::stand_in() = {};
}

TEST(CudaBackend, NeedsNoTensorCores) {  // a card of before 8.0 has none for bf16
  gpu::emulator::stand_in().cards[0].major = 7;
  gpu::emulator::stand_in().cards[0].minor = 5;
  const model::Config config = model::synthetic_config("tiny-odd");
  const auto tokens = some_tokens(17, config.vocab_size);
  expect_same_taps(taps_of(*cuda_of(config), {}, tokens), taps_of(*reference_of(config), {}, tokens), "7.5");
  gpu::emulator::stand_in() = {};
}

/// What each kernel streams in a step behind 70 tokens, which is what its launcher declares.
std::map<std::string, std::size_t> streamed_by_step(const Backend& backend, std::size_t embedding_scales) {
  Session session(backend, 80);
  session.forward(some_tokens(70, backend.config().vocab_size));
  const auto before = gpu::emulator::streamed_bytes();
  session.forward(std::vector<TokenId>{301});
  auto streamed = gpu::emulator::streamed_bytes();
  for (const auto& [kernel, bytes] : before) streamed[kernel] -= bytes;
  session.rewind(70);
  auto timed = gpu::emulator::streamed_bytes();
  const auto kernels = session.time_kernels(2);
  for (const engine::KernelTime& kernel : kernels) {
    const std::size_t not_streamed = kernel.name == "embed" ? embedding_scales : 0;
    EXPECT_EQ(kernel.bytes, static_cast<double>(streamed[kernel.name] + not_streamed)) << kernel.name;
    // In a whole step, once to warm up and twice for a time: no kernel ran while another one was timed.
    EXPECT_EQ(gpu::emulator::streamed_bytes().at(kernel.name),
              timed[kernel.name] + 4 * streamed[kernel.name]);
  }
  return streamed;
}

TEST(CudaBackend, ReadsEachWeightAndEachKeyOnceAStep) {
  const auto checkpoint = model::Checkpoint::open(model::locate(std::string(FS_SOURCE_DIR "/golden/tiny")));
  const model::Config& config = checkpoint.config();
  ThreadPool pool(2);
  const model::Weights stored = checkpoint.load(pool);
  for (const model::Dtype dtype : {model::Dtype::bf16, model::Dtype::q8_0, model::Dtype::int4}) {
    const model::Weights weights = model::quantize(config, stored, dtype, pool);
    std::size_t stored_bytes = 0, packed_bytes = 0;
    const auto add = [&](const model::Matrix& m) {
      const PackedMatrix on_device = packed(m, format_of(m.dtype));
      stored_bytes += m.rows * m.row_bytes();
      packed_bytes += on_device.chunks.size() + on_device.scales.size() * sizeof(gpu::F16);
    };
    add(weights.lm_head);
    for (const model::LayerWeights& l : weights.layers) {
      for (const model::Matrix* m :
           {&l.q_proj, &l.k_proj, &l.v_proj, &l.o_proj, &l.gate_proj, &l.up_proj, &l.down_proj}) {
        add(*m);
      }
    }
    const model::Matrix& table = weights.embed_tokens;
    const PackedMatrix packed_table = packed(table, format_of(table.dtype));
    const std::size_t embedding = packed_table.chunks.size() / table.rows;
    const std::size_t embedding_scales = packed_table.scales.size() * sizeof(gpu::F16) / table.rows;
    const std::size_t keys_and_values = config.n_layers * 2 * 71 * config.kv_width() * sizeof(float);
    SCOPED_TRACE(model::name(dtype));
    const auto cuda = make_backend(config, weights, {});
    std::size_t moved = 0;
    for (const auto& [kernel, bytes] : streamed_by_step(*cuda, embedding_scales)) moved += bytes;
    EXPECT_EQ(moved, packed_bytes + embedding + keys_and_values);
    if (dtype == model::Dtype::q8_0) {
      const auto persistent = make_backend(config, weights, {.kv = model::Dtype::f16, .persistent = true});
      EXPECT_EQ(persistent->step(), "persistent");
      EXPECT_GT(streamed_by_step(*persistent, embedding_scales)["decode_layers"], 0U);
    }
    EXPECT_LE(static_cast<double>(moved), 1.02 * static_cast<double>(stored_bytes + keys_and_values));
  }
}

#endif

TEST(CudaBackend, RefusesADeviceThatIsNotThere) {
  const model::Config config = small_config();
  try {
    make_backend(config, synthetic_weights(config), {.device = 99});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::device);
  }
}

}  // namespace
}  // namespace fs::cuda::FS_GPU_BUILD

// What fs bench counts and computes: statistics, bytes and operations, the roofline, what is timed.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "bench/roofline.h"
#include "bench/statistics.h"
#include "bench/timeline.h"
#include "bench/workload.h"
#include "engine/backend.h"
#include "model/synthetic.h"
#include "synthetic_model.h"

namespace fs::bench {
namespace {

using testing::some_tokens;

TEST(Statistics, MeanDeviationAndMedian) {
  const Summary odd = summarize(std::vector<double>{4, 1, 7});
  EXPECT_DOUBLE_EQ(odd.mean, 4);
  EXPECT_DOUBLE_EQ(odd.deviation, 3);  // sqrt((0 + 9 + 9) / 2)
  EXPECT_DOUBLE_EQ(odd.median, 4);
  const Summary even = summarize(std::vector<double>{10, 1, 2, 3});
  EXPECT_DOUBLE_EQ(even.mean, 4);
  EXPECT_DOUBLE_EQ(even.deviation, std::sqrt((36 + 9 + 4 + 1) / 3.0));
  EXPECT_DOUBLE_EQ(even.median, 2.5);
  const Summary one = summarize(std::vector<double>{5});
  EXPECT_DOUBLE_EQ(one.mean, 5);
  EXPECT_DOUBLE_EQ(one.deviation, 0);
  EXPECT_DOUBLE_EQ(one.median, 5);
}

TEST(Workload, NamesAndOrder) {
  const auto all = workloads({512, 0}, {128, 16}, {0, 2048});
  std::vector<std::string> names;
  for (const Workload& workload : all) names.push_back(workload.name());
  EXPECT_EQ(names,
            (std::vector<std::string>{"pp512", "tg128", "tg16", "pp512@d2048", "tg128@d2048", "tg16@d2048"}));
  EXPECT_EQ(all[4].positions(), 2176U);
  EXPECT_TRUE(workloads({0}, {0}, {0, 5}).empty());
  names.clear();
  for (const Workload& workload : workloads({512}, {128}, {0, 64}, {1, 8})) names.push_back(workload.name());
  EXPECT_EQ(names,
            (std::vector<std::string>{"pp512", "tg128", "tg128x8", "pp512@d64", "tg128@d64", "tg128x8@d64"}));
}

/// Matrices of a shape in a format, without their bytes.
model::Weights shapes_of(const model::Config& c, model::Dtype layers, model::Dtype tables) {
  const auto norm = [](std::size_t width) { return model::Vector(width, 1.0F); };
  model::LayerWeights layer;
  layer.input_norm = layer.post_attention_norm = norm(c.hidden);
  layer.q_norm = layer.k_norm = norm(c.head_dim);
  layer.q_proj = {layers, c.q_width(), c.hidden, nullptr};
  layer.k_proj = layer.v_proj = {layers, c.kv_width(), c.hidden, nullptr};
  layer.o_proj = {layers, c.hidden, c.q_width(), nullptr};
  layer.gate_proj = layer.up_proj = {layers, c.intermediate, c.hidden, nullptr};
  layer.down_proj = {layers, c.hidden, c.intermediate, nullptr};
  model::Weights weights;
  weights.layers.assign(c.n_layers, layer);
  weights.final_norm = norm(c.hidden);
  weights.embed_tokens = weights.lm_head = {tables, c.vocab_size, c.hidden, nullptr};
  return weights;
}

// Qwen3-0.6B, by hand: a layer has 2·1024·2048 (q, o) + 2·1024·1024 (k, v) + 3·1024·3072 = 15,728,640
// weights, 28 of them 440,401,920; the table 151,936·1024 = 155,582,464. Norms: 28·(2·1024 + 2·128) + 1024 =
// 65,536 floats. Keys and values: 28·2·1024 floats = 229,376 bytes a position.
constexpr double layer_weights = 440401920, table_weights = 155582464, norm_bytes = 4.0 * 65536;
constexpr std::size_t kv_bytes = 229376;

TEST(Cost, OfDecodingQwen3) {
  const model::Config config = model::synthetic_config("qwen3-0.6b");
  const model::Weights bf16 = shapes_of(config, model::Dtype::bf16, model::Dtype::bf16);
  // Every weight, the token's row of the embedding, and itself as the only position.
  const Cost first = cost({Workload::Kind::decode, 1, 0}, config, bf16, kv_bytes);
  EXPECT_EQ(first.bytes, 2 * (layer_weights + table_weights) + norm_bytes + 2 * 1024 + kv_bytes);
  EXPECT_EQ(first.bytes, 1192462336.0);
  EXPECT_EQ(first.flops, 2 * (layer_weights + table_weights) + 28 * 2 * 2 * 2048);
  // The fourth of four tokens behind 2048 sees 2052 positions.
  const Cost deep = cost({Workload::Kind::decode, 4, 2048}, config, bf16, kv_bytes);
  double bytes = 0, flops = 0;
  for (const double seen : {2049, 2050, 2051, 2052}) {
    bytes += 2 * (layer_weights + table_weights) + norm_bytes + 2 * 1024 + seen * kv_bytes;
    flops += 2 * (layer_weights + table_weights) + seen * 28 * 4 * 2048;
  }
  EXPECT_EQ(deep.bytes, bytes);
  EXPECT_EQ(deep.flops, flops);
}

TEST(Cost, OfSequencesThatShareEachReadOfTheWeights) {
  const model::Config config = model::synthetic_config("qwen3-0.6b");
  const model::Weights bf16 = shapes_of(config, model::Dtype::bf16, model::Dtype::bf16);
  const Workload eight{Workload::Kind::decode, 4, 100, 8}, one{Workload::Kind::decode, 4, 100};
  EXPECT_EQ(eight.all_tokens(), 32U);
  EXPECT_EQ(eight.positions(), 104U);
  const double weights = 4 * (2 * (layer_weights + table_weights) + norm_bytes);
  const Cost alone = cost(one, config, bf16, kv_bytes), together = cost(eight, config, bf16, kv_bytes);
  EXPECT_EQ(together.bytes - weights, 8 * (alone.bytes - weights));
  EXPECT_EQ(together.flops, 8 * alone.flops);
}

TEST(Cost, OfQuantisedWeights) {
  const model::Config config = model::synthetic_config("qwen3-0.6b");
  const Workload one{Workload::Kind::decode, 1, 0};
  const Cost q8 = cost(one, config, shapes_of(config, model::Dtype::q8_0, model::Dtype::q8_0), kv_bytes);
  EXPECT_EQ(q8.bytes, (layer_weights + table_weights) / 32 * 34 + norm_bytes + 1024 / 32 * 34 + kv_bytes);
  const Cost int4 = cost(one, config, shapes_of(config, model::Dtype::int4, model::Dtype::q8_0), kv_bytes);
  EXPECT_EQ(int4.bytes,
            layer_weights / 128 * 66 + table_weights / 32 * 34 + norm_bytes + 1024 / 32 * 34 + kv_bytes);
  EXPECT_EQ(q8.flops, int4.flops);
}

TEST(Cost, OfAPrompt) {
  const model::Config config = model::synthetic_config("qwen3-0.6b");
  const model::Weights bf16 = shapes_of(config, model::Dtype::bf16, model::Dtype::bf16);
  // One pass: weights once, the head for the last token alone, 512 rows of the embedding, 612 positions.
  const Cost prompt = cost({Workload::Kind::prefill, 512, 100}, config, bf16, kv_bytes);
  EXPECT_EQ(prompt.bytes,
            2 * (layer_weights + table_weights) + norm_bytes + 512 * 2 * 1024 + 612.0 * kv_bytes);
  double seen = 0;
  for (int i = 0; i < 512; ++i) seen += 100 + i + 1;
  // 27 layers whole; of the last one 512 keys and values, and one token that sees 612 positions.
  const double keys_and_values = 2 * 1024 * 1024, layer = layer_weights / 28;
  EXPECT_EQ(prompt.flops, 512 * 2 * 27 * layer + 512 * 2 * keys_and_values + 2 * (layer - keys_and_values) +
                              2 * table_weights + (27 * seen + 612) * 4 * 2048);
}

TEST(Cost, BackendsSayWhatTheirCacheTakes) {
  const model::Config config = testing::small_config();
  for (const char* name : {"cpu", "reference"}) {
    const auto backend = engine::make_backend({name, 1}, config, testing::synthetic_weights(config));
    EXPECT_EQ(backend->kv_position_bytes(), 2U * 2 * 3 * 10 * 4)
        << name;  // layers, k and v, heads, width, fp32
  }
}

TEST(Limit, IsTheSlowerOfMemoryAndArithmetic) {
  Roofline roofline;
  roofline.read_best = 10;
  roofline.peaks = {{Arithmetic::fp32, "", 100, 90}, {Arithmetic::int8, "", 400, 300}};
  const Limit reading = limit({50, 400}, roofline, Arithmetic::fp32);
  EXPECT_EQ(reading.bound, Bound::memory);
  EXPECT_DOUBLE_EQ(reading.seconds, 5);
  const Limit computing = limit({50, 800}, roofline, Arithmetic::fp32);
  EXPECT_EQ(computing.bound, Bound::arithmetic);
  EXPECT_DOUBLE_EQ(computing.seconds, 8);
  EXPECT_EQ(limit({50, 800}, roofline, Arithmetic::int8).bound, Bound::memory);
  EXPECT_DOUBLE_EQ(limit({50, 800}, roofline, Arithmetic::bf16, 3).seconds, 24);
  // bf16 is not there: the products are fp32's.
  EXPECT_DOUBLE_EQ(limit({50, 800}, roofline, Arithmetic::bf16).seconds, 8);
}

TEST(Probes, DoTheOperationsTheyAreCreditedWith) {
  const auto probes = peak_probes();
  ASSERT_FALSE(probes.empty());
  EXPECT_EQ(probes.front().arithmetic, Arithmetic::fp32);
  for (const PeakProbe& probe : probes) {
    // A product of ones is 1: the sum counts products, of which each is two operations.
    for (const std::size_t rounds : {1U, 7U, 100U}) {
      EXPECT_EQ(2 * probe.run(rounds), static_cast<double>(rounds) * probe.operations) << probe.instructions;
    }
  }
}

TEST(Probes, ReadEveryWordOnce) {
  constexpr std::size_t words = 4 * 8 * 5;  // five lines of each stream
  alignas(64) std::uint64_t memory[words];
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < words; ++i) {
    memory[i] = (i + 1) * 0x9E3779B97F4A7C15U;
    all ^= memory[i];
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(memory);
  EXPECT_EQ(read_memory(bytes, sizeof memory), all);
  for (std::size_t i = 0; i < words; ++i) {
    memory[i] ^= 1;
    EXPECT_EQ(read_memory(bytes, sizeof memory), all ^ 1) << i;
    memory[i] ^= 1;
  }
}

TEST(Roofline, IsMeasuredAndReportsItsProgress) {
  std::uint64_t calls = 0, last = 0;
  const Roofline roofline =
      measure_roofline(2, [&](std::string_view stage, std::uint64_t done, std::uint64_t total) {
        EXPECT_EQ(stage, "roofline");
        EXPECT_LT(done, total);
        last = done;
        ++calls;
      });
  EXPECT_EQ(calls, last + 1);
  EXPECT_EQ(roofline.threads, 2U);
  EXPECT_GT(roofline.read_median, 1e6);
  EXPECT_GE(roofline.read_best, roofline.read_median);
  ASSERT_EQ(roofline.peaks.size(), peak_probes().size());
  for (const Peak& peak : roofline.peaks) {
    EXPECT_GT(peak.median, 1e6);
    EXPECT_GE(peak.best, peak.median);
  }
}

TEST(Roofline, StopsWhenProgressThrows) {
  EXPECT_THROW(measure_roofline(1, [](std::string_view, std::uint64_t,
                                      std::uint64_t) { fail(ExitCode::interrupted, "stop"); }),
               Error);
}

/// Notes the passes that another backend runs, and can spoil logits.
class Noting final : public engine::Backend {
 public:
  explicit Noting(std::unique_ptr<engine::Backend> backend) : backend_(std::move(backend)) {}
  std::string_view name() const override { return backend_->name(); }
  const model::Config& config() const override { return backend_->config(); }
  std::size_t preferred_chunk() const override { return 64; }
  std::size_t kv_position_bytes() const override { return backend_->kv_position_bytes(); }
  std::unique_ptr<engine::KvCache> make_cache(std::size_t context) const override {
    return backend_->make_cache(context);
  }
  void forward(engine::KvCache& cache, const engine::Pass& pass) const override {
    passes.push_back({pass.first_position, pass.tokens.size()});
    backend_->forward(cache, pass);
    if (spoil && !pass.logits.empty()) pass.logits[0] = NAN;
  }

  mutable std::vector<std::pair<std::size_t, std::size_t>> passes;  // position, tokens
  bool spoil = false;

 private:
  std::unique_ptr<engine::Backend> backend_;
};

Noting noting_backend() {
  const model::Config config = testing::small_config();
  return Noting(engine::make_backend({"cpu", 1}, config, testing::synthetic_weights(config)));
}

TEST(Timeline, RunsWhatTheWorkloadSays) {
  const Noting backend = noting_backend();
  Timeline timeline(backend, 200);
  using Passes = std::vector<std::pair<std::size_t, std::size_t>>;
  const auto prompt = timeline.measure({Workload::Kind::prefill, 7, 0}, {3, true, {}});
  EXPECT_EQ(backend.passes, Passes(4, {0, 7}));  // the warm-up and three
  ASSERT_EQ(prompt.size(), 3U);
  for (const double seconds : prompt) EXPECT_GT(seconds, 0);

  backend.passes.clear();
  // Seven positions are there already; nine are missing. Decoding warms up on at most eight tokens.
  const auto decode = timeline.measure({Workload::Kind::decode, 2, 16}, {2, true, {}});
  EXPECT_EQ(backend.passes, (Passes{{7, 9}, {16, 1}, {17, 1}, {16, 1}, {17, 1}, {16, 1}, {17, 1}}));
  EXPECT_EQ(decode.size(), 2U);

  backend.passes.clear();
  timeline.measure({Workload::Kind::prefill, 100, 0}, {1, false, {}});
  EXPECT_EQ(backend.passes, (Passes{{0, 64}, {64, 36}}));
}

TEST(Timeline, SequencesStepTogetherEachOnATimelineOfItsOwn) {
  const Noting backend = noting_backend();
  Timeline timeline(backend, 200);
  using Passes = std::vector<std::pair<std::size_t, std::size_t>>;
  std::uint64_t last = 0, most = 0;
  const TimingOptions options{2, true, [&](std::uint64_t done, std::uint64_t total) {
                                EXPECT_GE(done, last);
                                last = done;
                                most = total;
                              }};
  EXPECT_EQ(timeline.measure({Workload::Kind::decode, 2, 5, 3}, options).size(), 2U);
  // Noting runs the steps of a batch one after another.
  Passes want(3, {0, 5});
  for (int run = 0; run < 3; ++run) {
    for (const std::size_t position : {5U, 6U}) want.insert(want.end(), 3, {position, 1});
  }
  EXPECT_EQ(backend.passes, want);
  EXPECT_EQ(most, 3U * 5 + 3 * 3 * 2);
  EXPECT_EQ(last, most - 3);
  backend.passes.clear();
  timeline.measure({Workload::Kind::decode, 1, 5}, {1, false, {}});  // the first of them alone
  EXPECT_EQ(backend.passes, (Passes{{5, 1}}));
}

TEST(Timeline, ProgressCountsTokensAndMayStop) {
  const Noting backend = noting_backend();
  Timeline timeline(backend, 50);
  std::uint64_t last = 0;
  TimingOptions options{2, true, [&](std::uint64_t done, std::uint64_t total) {
                          EXPECT_GE(done, last);
                          EXPECT_EQ(total, 10U + 3 + 2 * 3);  // to the depth, warm-up, two repetitions
                          last = done;
                        }};
  timeline.measure({Workload::Kind::decode, 3, 10}, options);
  EXPECT_EQ(last, 18U);
  options.progress = [](std::uint64_t done, std::uint64_t) {
    if (done == 5) fail(ExitCode::interrupted, "stop");
  };
  EXPECT_THROW(timeline.measure({Workload::Kind::decode, 9, 0}, options), Error);
  options.progress = {};
  EXPECT_EQ(timeline.measure({Workload::Kind::decode, 3, 10}, options).size(), 2U);
}

TEST(Timeline, NotFiniteLogitsAreAnErrorAndAFullContextToo) {
  Noting backend = noting_backend();
  EXPECT_THROW(Timeline(backend, 301), Error);  // the model's limit is 300
  Timeline timeline(backend, 10);
  EXPECT_THROW(timeline.measure({Workload::Kind::decode, 8, 8}, {1, false, {}}), Error);
  backend.spoil = true;
  EXPECT_THROW(timeline.measure({Workload::Kind::decode, 2, 0}, {1, true, {}}), Error);
}

}  // namespace
}  // namespace fs::bench

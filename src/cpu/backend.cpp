#include "cpu/backend.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "cpu/attention.h"
#include "cpu/isa.h"
#include "cpu/kv_cache.h"
#include "cpu/linear.h"
#include "cpu/panels.h"
#include "cpu/rope.h"
#include "cpu/team.h"

namespace fs::cpu {
namespace {

using engine::deliver;
using engine::LogitRows;
using engine::Pass;
using engine::Step;
using engine::TapPoint;

/// Up to so many rows have less work in a norm or a store than waking a thread costs.
constexpr std::size_t few_rows = 8;
/// Of a longer run of decode steps attention would not split the positions among threads as it does for one.
constexpr std::size_t most_steps_together = 8;

void check_matrices(const model::Config& config, model::Weights weights, Activations act) {
  model::replace_matrices(config, weights, [act](const std::string& name, const model::Matrix& matrix) {
    check_activations(act, name, model::name(matrix.dtype));
  });
}

class Cpu final : public engine::Backend {
 public:
  Cpu(const model::Config& config, model::Weights weights, const Options& options, const Kernels& kernels)
      : config_(config),
        weights_(std::move(weights)),
        kv_(options.kv),
        chunk_(options.prefill_chunk),
        rope_(config),
        team_(options.threads, kernels, options.act) {
    arrange(team_.pool, kernels, config_, weights_);
  }

  std::string_view name() const override { return "cpu"; }
  const model::Config& config() const override { return config_; }
  std::size_t preferred_chunk() const override { return chunk_; }
  std::size_t kv_position_bytes() const override {
    return config_.n_layers * 2 * config_.kv_width() * model::block_bytes(kv_);
  }
  std::unique_ptr<engine::KvCache> make_cache(std::size_t) const override {
    return std::make_unique<KvCache>(config_, team_.kernels, kv_);
  }

  void forward(engine::KvCache& kv_cache, const Pass& pass) const override {
    const Segment all{static_cast<KvCache&>(kv_cache), pass.first_position, 0, pass.tokens.size()};
    team_.steps = false;
    run({&all, 1}, pass);
  }
  void run_steps(std::span<const Step> steps, std::span<float> logits) const override;
  /// As many as dot products take before arithmetic outweighs the read of the weights.
  std::size_t preferred_steps() const override { return 8; }

 private:
  /// The layers, over rows of one timeline or of several. Only a pass over one may have taps.
  void run(std::span<const Segment> segments, const Pass& pass) const;

  /// Calls body(row) for every row.
  template <class Body>
  void for_rows(std::size_t rows, const Body& body) const {
    if (rows > few_rows) {
      team_.pool.for_each(rows, [&](std::size_t row, std::size_t) { body(row); });
    } else {
      for (std::size_t row = 0; row < rows; ++row) body(row);
    }
  }
  /// out = table[tokens].  out: [tokens, hidden]
  void embed(std::span<const TokenId> tokens, std::span<float> out) const;
  /// x, out: [rows, weight.size()]
  void rms_norm(std::span<const float> x, const model::Vector& weight, std::span<float> out) const;
  /// Puts keys and values into the caches.  k, v: [rows, n_kv_heads, head_dim]
  void store(std::span<const Segment> segments, std::size_t layer, std::span<const float> k,
             std::span<const float> v) const;
  /// RMSNorm of every head, then RoPE.  x: [rows, heads, head_dim]
  void norm_and_rope(std::span<float> x, std::size_t heads, const model::Vector& weight,
                     const Rope::Table& angles) const;

  model::Config config_;
  model::Weights weights_;
  model::Dtype kv_;
  std::size_t chunk_;
  Rope rope_;
  mutable Team team_;
};

/// The same lines as the reference's forward; an operation with two names is one pass over memory. No fused
/// step spans a tap point, so taps see, and observers may replace, exactly what the next step reads.
void Cpu::run(std::span<const Segment> segments, const Pass& pass) const {
  const model::Config& c = config_;
  const std::size_t rows = pass.tokens.size();
  const std::size_t head_rows = pass.logit_rows == LogitRows::all    ? rows
                                : pass.logit_rows == LogitRows::last ? 1
                                                                     : 0;
  Rope::Table angles;
  for (const Segment& segment : segments) {
    segment.cache.grow(segment.first_position + segment.rows);
    rope_.append(angles, segment.first_position, segment.rows);
  }

  const Segment last_row{segments.back().cache, pass.first_position + rows - 1, 0, 1};
  team_.pass.reserve(rows * (2 * c.hidden + 2 * c.q_width() + 2 * c.kv_width() + c.intermediate));
  float* rest = team_.pass.data();
  const auto take = [&](std::size_t width) {
    return std::span(std::exchange(rest, rest + rows * width), rows * width);
  };
  auto x = take(c.hidden);       // the residual stream
  auto normed = take(c.hidden);  // what a norm gives
  auto q = take(c.q_width()), mixed = take(c.q_width());
  const auto k = take(c.kv_width()), v = take(c.kv_width());
  auto act = take(c.intermediate);

  embed(pass.tokens, x);
  deliver(pass, TapPoint::embed, 0, 1, c.hidden, x);

  for (std::size_t l = 0; l < c.n_layers; ++l) {
    const model::LayerWeights& w = weights_.layers[l];

    rms_norm(x, w.input_norm, normed);
    deliver(pass, TapPoint::attn_norm, l, 1, c.hidden, normed);

    linear(team_, {{w.q_proj, q}, {w.k_proj, k}, {w.v_proj, v}}, normed);
    norm_and_rope(q, c.n_q_heads, w.q_norm, angles);
    norm_and_rope(k, c.n_kv_heads, w.k_norm, angles);
    if (pass.taps != nullptr) {  // they show what the cache will hold
      segments.front().cache.round(k);
      segments.front().cache.round(v);
    }
    deliver(pass, TapPoint::q, l, c.n_q_heads, c.head_dim, q);
    deliver(pass, TapPoint::k, l, c.n_kv_heads, c.head_dim, k);
    deliver(pass, TapPoint::v, l, c.n_kv_heads, c.head_dim, v);
    store(segments, l, k, v);
    if (l + 1 == c.n_layers && pass.taps == nullptr && head_rows < rows) {
      // Nobody reads more of this layer than that and the one row that logits are asked of.
      if (head_rows == 0) return;
      segments = {&last_row, 1};
      x = x.last(c.hidden), normed = normed.last(c.hidden), q = q.last(c.q_width());
      mixed = mixed.first(c.q_width()), act = act.first(c.intermediate);
    }

    attention(team_, c, q, segments, l, mixed);
    deliver(pass, TapPoint::attn_out, l, c.n_q_heads, c.head_dim, mixed);

    linear_add(team_, w.o_proj, mixed, x);
    deliver(pass, TapPoint::attn_resid, l, 1, c.hidden, x);

    rms_norm(x, w.post_attention_norm, normed);
    deliver(pass, TapPoint::mlp_norm, l, 1, c.hidden, normed);

    linear_swiglu(team_, w.gate_proj, w.up_proj, normed, act);
    deliver(pass, TapPoint::mlp_act, l, 1, c.intermediate, act);

    linear_add(team_, w.down_proj, act, x);
    deliver(pass, TapPoint::block_out, l, 1, c.hidden, x);
  }

  rms_norm(x, weights_.final_norm, normed);
  deliver(pass, TapPoint::final_norm, 0, 1, c.hidden, normed);

  if (pass.logit_rows == LogitRows::none) return;
  linear(team_, {{weights_.lm_head, pass.logits}}, normed.last(head_rows * c.hidden));
  deliver(pass, TapPoint::logits, 0, 1, c.vocab_size, pass.logits);
}

void Cpu::run_steps(std::span<const Step> steps, std::span<float> logits) const {
  std::vector<TokenId> tokens;
  std::vector<Segment> segments;
  for (const Step& step : steps) {
    auto& cache = static_cast<KvCache&>(step.cache);
    if (!segments.empty() && &segments.back().cache == &cache && segments.back().rows < most_steps_together &&
        segments.back().first_position + segments.back().rows == step.position) {
      ++segments.back().rows;
    } else {
      segments.push_back({cache, step.position, tokens.size(), 1});
    }
    tokens.push_back(step.token);
  }
  Pass pass;
  pass.tokens = tokens;
  pass.logit_rows = LogitRows::all;
  pass.logits = logits;
  team_.steps = true;
  run(segments, pass);
}

void Cpu::embed(std::span<const TokenId> tokens, std::span<float> out) const {
  const model::Matrix& table = weights_.embed_tokens;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    decode_row(team_.kernels, table, tokens[t], out.subspan(t * table.cols, table.cols));
  }
}

void Cpu::rms_norm(std::span<const float> x, const model::Vector& weight, std::span<float> out) const {
  const std::size_t width = weight.size();
  for_rows(x.size() / width, [&](std::size_t row) {
    const std::size_t at = row * width;
    team_.kernels.rms_norm(x.data() + at, weight.data(), width, config_.rms_norm_eps, out.data() + at);
  });
}

void Cpu::store(std::span<const Segment> segments, std::size_t layer, std::span<const float> k,
                std::span<const float> v) const {
  const std::size_t width = config_.kv_width();
  for (const auto& segment : segments) {
    const auto keys = k.subspan(segment.first_row * width, segment.rows * width),
               values = v.subspan(segment.first_row * width, segment.rows * width);
    if (segment.rows <= few_rows) {
      segment.cache.store(layer, segment.first_position, keys, values);
    } else {
      team_.pool.for_each(config_.n_kv_heads, [&](std::size_t head, std::size_t) {
        segment.cache.store(layer, head, segment.first_position, keys, values);
      });
    }
  }
}

void Cpu::norm_and_rope(std::span<float> x, std::size_t heads, const model::Vector& weight,
                        const Rope::Table& angles) const {
  const std::size_t dim = config_.head_dim, half = rope_.half();
  for_rows(x.size() / (heads * dim), [&](std::size_t row) {
    for (std::size_t h = 0; h < heads; ++h) {
      float* const head = x.data() + (row * heads + h) * dim;
      team_.kernels.rms_norm(head, weight.data(), dim, config_.rms_norm_eps, head);
      team_.kernels.rope(head, angles.cosines.data() + row * half, angles.sines.data() + row * half, half);
    }
  });
}

}  // namespace

void check_activations(Activations act, std::string_view name, std::string_view dtype) {
  if (act != Activations::int8) return;
  if (dtype == model::name(model::Dtype::q8_0) || dtype == model::name(model::Dtype::int4)) return;
  fail(ExitCode::usage, "--act int8 is for weights in q8_0 or int4: {} is {}; add --dtype q8_0", name, dtype);
}

std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              const Options& options) {
  if (options.act != Activations::f32) check_matrices(config, weights, options.act);
  return std::make_unique<Cpu>(config, std::move(weights), options, choose_kernels(options.isa));
}

}  // namespace fs::cpu

#include "reference/backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "reference/ops.h"

namespace fs::reference {
namespace {

using engine::deliver;
using engine::LogitRows;
using engine::Pass;
using engine::TapPoint;

/// Keys (after QK-norm and RoPE) and values of every layer, fp32.
struct Cache final : engine::KvCache {
  struct Layer {
    std::vector<float> keys, values;  // [positions, n_kv_heads, head_dim]
  };
  std::vector<Layer> layers;
  std::size_t context = 0;

  /// Makes room for `positions` of `width` floats, in steps that double, never beyond the context.
  void grow(std::size_t positions, std::size_t width) {
    for (auto& layer : layers) {
      for (auto* half : {&layer.keys, &layer.values}) {
        if (half->capacity() < positions * width) {
          half->reserve(std::min(context, std::max(positions, 2 * half->size() / width)) * width);
        }
        half->resize(positions * width);
      }
    }
  }
};

class Reference final : public engine::Backend {
 public:
  Reference(const model::Config& config, model::Weights weights, std::size_t threads, std::size_t chunk)
      : config_(config), weights_(std::move(weights)), chunk_(chunk), pool_(threads) {}

  std::string_view name() const override { return "reference"; }
  const model::Config& config() const override { return config_; }
  std::size_t preferred_chunk() const override { return chunk_; }
  std::size_t kv_position_bytes() const override {
    return config_.n_layers * 2 * config_.kv_width() * sizeof(float);
  }

  std::unique_ptr<engine::KvCache> make_cache(std::size_t context) const override {
    auto cache = std::make_unique<Cache>();
    cache->layers.resize(config_.n_layers);
    cache->context = context;
    return cache;
  }

  void forward(engine::KvCache& kv_cache, const Pass& pass) const override;

 private:
  model::Config config_;
  model::Weights weights_;
  std::size_t chunk_;
  mutable ThreadPool pool_;
};

/// The whole model, top to bottom. Every other backend's forward is laid beside this one.
void Reference::forward(engine::KvCache& kv_cache, const Pass& pass) const {
  auto& cache = static_cast<Cache&>(kv_cache);
  const model::Config& c = config_;
  const std::size_t rows = pass.tokens.size(), start = pass.first_position;
  cache.grow(start + rows, c.kv_width());

  std::vector<float> x(rows * c.hidden);       // the residual stream
  std::vector<float> normed(rows * c.hidden);  // what a norm gives
  std::vector<float> delta(rows * c.hidden);   // what a block adds
  std::vector<float> q(rows * c.q_width()), mixed(rows * c.q_width());
  std::vector<float> gate(rows * c.intermediate), up(rows * c.intermediate);

  embed(weights_.embed_tokens, pass.tokens, x);
  deliver(pass, TapPoint::embed, 0, 1, c.hidden, x);

  for (std::size_t l = 0; l < c.n_layers; ++l) {
    const model::LayerWeights& w = weights_.layers[l];
    const std::span<float> keys(cache.layers[l].keys),
        values(cache.layers[l].values);  // all positions so far
    const auto k = keys.subspan(start * c.kv_width()),
               v = values.subspan(start * c.kv_width());  // this pass's rows

    rms_norm(x, w.input_norm, c.rms_norm_eps, normed);
    deliver(pass, TapPoint::attn_norm, l, 1, c.hidden, normed);

    linear(pool_, w.q_proj, normed, q);
    linear(pool_, w.k_proj, normed, k);
    linear(pool_, w.v_proj, normed, v);
    rms_norm(q, w.q_norm, c.rms_norm_eps, q);
    rms_norm(k, w.k_norm, c.rms_norm_eps, k);
    rope(q, c.n_q_heads, c.head_dim, start, c.rope_theta);
    rope(k, c.n_kv_heads, c.head_dim, start, c.rope_theta);
    deliver(pass, TapPoint::q, l, c.n_q_heads, c.head_dim, q);
    deliver(pass, TapPoint::k, l, c.n_kv_heads, c.head_dim, k);
    deliver(pass, TapPoint::v, l, c.n_kv_heads, c.head_dim, v);

    attention(pool_, c, q, keys, values, start, mixed);
    deliver(pass, TapPoint::attn_out, l, c.n_q_heads, c.head_dim, mixed);

    linear(pool_, w.o_proj, mixed, delta);
    add(x, delta);
    deliver(pass, TapPoint::attn_resid, l, 1, c.hidden, x);

    rms_norm(x, w.post_attention_norm, c.rms_norm_eps, normed);
    deliver(pass, TapPoint::mlp_norm, l, 1, c.hidden, normed);

    linear(pool_, w.gate_proj, normed, gate);
    linear(pool_, w.up_proj, normed, up);
    swiglu(gate, up);
    deliver(pass, TapPoint::mlp_act, l, 1, c.intermediate, gate);

    linear(pool_, w.down_proj, gate, delta);
    add(x, delta);
    deliver(pass, TapPoint::block_out, l, 1, c.hidden, x);
  }

  rms_norm(x, weights_.final_norm, c.rms_norm_eps, normed);
  deliver(pass, TapPoint::final_norm, 0, 1, c.hidden, normed);

  if (pass.logit_rows == LogitRows::none) return;
  const std::size_t head_rows = pass.logit_rows == LogitRows::all ? rows : 1;
  linear(pool_, weights_.lm_head, std::span(normed).last(head_rows * c.hidden), pass.logits);
  deliver(pass, TapPoint::logits, 0, 1, c.vocab_size, pass.logits);
}

}  // namespace

std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              std::size_t threads, std::optional<std::size_t> prefill_chunk) {
  return std::make_unique<Reference>(config, std::move(weights), threads, prefill_chunk.value_or(32));
}

}  // namespace fs::reference

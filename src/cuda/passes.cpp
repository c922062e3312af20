#include <algorithm>
#include <vector>

#include "cuda/cuda.h"
#include "cuda/prefill_linear.h"

namespace fs::cuda::FS_GPU_BUILD {

void Cuda::forward(engine::KvCache& kv_cache, const Pass& pass) const {
  auto& cache = static_cast<KvCache&>(kv_cache);
  const std::size_t rows = pass.tokens.size();
  cache.grow(pass.first_position + rows);
  if (rows > 1 && rows > prefill_.rows) {
    prefill_ = Scratch();  // before there is another
    prefill_ = Scratch(config_, std::max(rows, chunk_));
  }
  rows == 1 ? decode(cache, pass) : prefill(cache, pass);
}

/// One token: the recorded step, or kernel by kernel where somebody watches.
void Cuda::decode(KvCache& cache, const Pass& pass) const {
  set_state(pass.tokens[0], pass.first_position, {.n_ids = static_cast<int>(config_.vocab_size)});
  if (stream_.waits() || engine::watches(pass.taps, config_.n_layers)) {
    decode_step(cache, pass);
  } else {
    if (!cache.decode_step) {
      cache.decode_step = std::make_unique<gpu::Graph>(stream_, [&] { decode_step(cache, Pass{}); });
    }
    cache.decode_step->launch(stream_);
  }
  if (pass.logit_rows != LogitRows::none) {
    gpu::copy_to_host(state_.host_logits.data(), state_.logits.data(), state_.logits.bytes(), stream_);
  }
  stream_.synchronize();
  if (pass.logit_rows != LogitRows::none) {
    std::copy_n(state_.host_logits.data(), config_.vocab_size, pass.logits.data());
    engine::deliver(pass, TapPoint::logits, 0, 1, config_.vocab_size, pass.logits);
  }
}

/// Embedding, layers, head. Layers that somebody watches run kernel by kernel.
void Cuda::decode_step(const KvCache& cache, const Pass& pass) const {
  const model::Config& c = config_;
  float* const x = decode_.x.data();
  float* const normed = decode_.normed.data();

  gpu::embed(stream_, weights_.embed_tokens, state_.state.data() + gpu::state_token, 1, x);
  tap(pass, TapPoint::embed, 0, 1, c.hidden, x);

  if (persistent_.blocks > 0 && !engine::watches(pass.taps, c.n_layers)) {
    gpu::decode_layers(stream_, all_layers(cache), persistent_.blocks);
  } else {
    decode_layers(cache, pass);
  }

  const float* head_input = x;
  const float* head_norm = weights_.final_norm;
  if (wanted(pass, TapPoint::final_norm, 0)) {
    gpu::rms_norm(stream_, x, weights_.final_norm, eps_, 1, static_cast<int>(c.hidden), normed);
    tap(pass, TapPoint::final_norm, 0, 1, c.hidden, normed);
    head_input = normed;
    head_norm = nullptr;
  }
  if (pass.logit_rows == LogitRows::none) return;
  gpu::head(stream_, weights_.lm_head, head_input, head_norm, eps_, state_.sampling.data(),
            state_.logits.data(), state_.head());
}

/// What gpu::decode_layers() runs in one kernel, in five a layer. Where a tap lies inside a fused kernel and
/// is wanted, the part before it runs by itself, with the same device functions.
void Cuda::decode_layers(const KvCache& cache, const Pass& pass) const {
  const model::Config& c = config_;
  float* const x = decode_.x.data();
  float* const normed = decode_.normed.data();
  float* const qkv = decode_.qkv.data();
  const int* const position = state_.state.data() + gpu::state_position;
  const auto hidden = static_cast<int>(c.hidden);

  for (std::size_t l = 0; l < c.n_layers; ++l) {
    const gpu::DeviceLayer& w = weights_.layers[l];
    const gpu::LayerCache layer = cache.layer(l);

    if (wanted(pass, TapPoint::attn_norm, l)) {
      gpu::rms_norm(stream_, x, w.input_norm, eps_, 1, hidden, normed);
      tap(pass, TapPoint::attn_norm, l, 1, c.hidden, normed);
      gpu::norm_qkv(stream_, w.qkv, normed, nullptr, eps_, qkv);
    } else {
      gpu::norm_qkv(stream_, w.qkv, x, w.input_norm, eps_, qkv);
    }

    const bool rotated =
        wanted(pass, TapPoint::q, l) || wanted(pass, TapPoint::k, l) || wanted(pass, TapPoint::v, l);
    if (rotated) {
      gpu::rotate(stream_, attention_, rotation(cache, l), qkv, 1, static_cast<int>(pass.first_position),
                  layer);
      tap_qkv(pass, cache, l, qkv);
    }
    gpu::attention_decode(stream_, attention_, qkv, rotated, rotation(cache, l), layer, position,
                          state_.partials());

    const bool merged = wanted(pass, TapPoint::attn_out, l);
    if (merged) {
      gpu::merge_partials(stream_, attention_, state_.partials(), position, decode_.mixed.data());
      tap(pass, TapPoint::attn_out, l, c.n_q_heads, c.head_dim, decode_.mixed.data());
    }
    gpu::attn_out(stream_, attention_, w.o_proj, state_.partials(), position,
                  merged ? decode_.mixed.data() : nullptr, x);
    tap(pass, TapPoint::attn_resid, l, 1, c.hidden, x);

    if (wanted(pass, TapPoint::mlp_norm, l)) {
      gpu::rms_norm(stream_, x, w.post_attention_norm, eps_, 1, hidden, normed);
      tap(pass, TapPoint::mlp_norm, l, 1, c.hidden, normed);
      gpu::swiglu(stream_, w.gate_proj, w.up_proj, normed, nullptr, eps_, decode_.gate.data());
    } else {
      gpu::swiglu(stream_, w.gate_proj, w.up_proj, x, w.post_attention_norm, eps_, decode_.gate.data());
    }
    tap(pass, TapPoint::mlp_act, l, 1, c.intermediate, decode_.gate.data());

    gpu::mlp_down(stream_, w.down_proj, decode_.gate.data(), x);
    tap(pass, TapPoint::block_out, l, 1, c.hidden, x);
  }
}

gpu::DecodeLayers Cuda::all_layers(const KvCache& cache) const {
  return {attention_,
          static_cast<int>(config_.n_layers),
          eps_,
          weights_.layers.front(),
          persistent_.weights_apart,
          cache.layer(0),
          cache.layer_bytes(),
          cache.angles(),
          state_.state.data() + gpu::state_position,
          decode_.x.data(),
          decode_.qkv.data(),
          decode_.gate.data(),
          state_.partials(),
          state_.arrivals.data()};
}

/// Many tokens: the same lines over all rows.
void Cuda::prefill(KvCache& cache, const Pass& pass) const {
  const model::Config& c = config_;
  const std::size_t n = pass.tokens.size();
  const auto rows = static_cast<int>(n), start = static_cast<int>(pass.first_position);
  const auto hidden = static_cast<int>(c.hidden);
  float* const x = prefill_.x.data();
  float* const normed = prefill_.normed.data();
  float* const qkv = prefill_.qkv.data();
  float* const mixed = prefill_.mixed.data();

  PrefillLinear linear(stream_, exact_, blas_.get());
  const bool flash = !exact_ && gpu::tensor_cores() && attention_.head_dim <= gpu::flash_most_dim;
  const auto attention = flash ? gpu::attention_prefill_tensor : gpu::attention_prefill;

  set_state(pass.tokens[0], pass.first_position, {.n_ids = static_cast<int>(config_.vocab_size)});
  const std::vector<int> tokens(pass.tokens.begin(), pass.tokens.end());
  gpu::copy_to_device(prefill_.tokens.data(), tokens.data(), n * sizeof(int), stream_);
  gpu::embed(stream_, weights_.embed_tokens, prefill_.tokens.data(), rows, x);
  tap(pass, TapPoint::embed, 0, 1, c.hidden, x);

  for (std::size_t l = 0; l < c.n_layers; ++l) {
    const gpu::DeviceLayer& w = weights_.layers[l];
    const gpu::LayerCache layer = cache.layer(l);

    gpu::rms_norm(stream_, x, w.input_norm, eps_, rows, hidden, normed);
    tap(pass, TapPoint::attn_norm, l, 1, c.hidden, normed);

    linear.begin(prefill_, normed, rows, hidden);
    linear(w.qkv, false, qkv);
    gpu::rotate(stream_, attention_, rotation(cache, l), qkv, rows, start, layer);
    tap_qkv(pass, cache, l, qkv);

    attention(stream_, attention_, qkv, layer, rows, start, mixed);
    tap(pass, TapPoint::attn_out, l, c.n_q_heads, c.head_dim, mixed);

    linear.begin(prefill_, mixed, rows, attention_.q_width());
    linear(w.o_proj, true, x);
    tap(pass, TapPoint::attn_resid, l, 1, c.hidden, x);

    gpu::rms_norm(stream_, x, w.post_attention_norm, eps_, rows, hidden, normed);
    tap(pass, TapPoint::mlp_norm, l, 1, c.hidden, normed);

    linear.begin(prefill_, normed, rows, hidden);
    linear(w.gate_proj, false, prefill_.gate.data());
    linear(w.up_proj, false, prefill_.up.data());
    gpu::swiglu_pairs(stream_, prefill_.gate.data(), prefill_.up.data(), n * c.intermediate,
                      prefill_.gate.data());
    tap(pass, TapPoint::mlp_act, l, 1, c.intermediate, prefill_.gate.data());

    linear.begin(prefill_, prefill_.gate.data(), rows, static_cast<int>(c.intermediate));
    linear(w.down_proj, true, x);
    tap(pass, TapPoint::block_out, l, 1, c.hidden, x);
  }

  gpu::rms_norm(stream_, x, weights_.final_norm, eps_, rows, hidden, normed);
  tap(pass, TapPoint::final_norm, 0, 1, c.hidden, normed);

  if (pass.logit_rows == LogitRows::last) {
    gpu::head(stream_, weights_.lm_head, normed + (n - 1) * c.hidden, nullptr, eps_, state_.sampling.data(),
              state_.logits.data(), state_.head());
    gpu::copy_to_host(state_.host_logits.data(), state_.logits.data(), state_.logits.bytes(), stream_);
    stream_.synchronize();
    std::copy_n(state_.host_logits.data(), c.vocab_size, pass.logits.data());
  } else if (pass.logit_rows == LogitRows::all) {
    const DeviceArray<float> logits(std::min(n, logit_rows) * c.vocab_size);
    for (std::size_t first = 0; first < n; first += logit_rows) {
      const std::size_t count = std::min(logit_rows, n - first);
      linear.begin(prefill_, normed + first * c.hidden, static_cast<int>(count), hidden);
      linear(weights_.lm_head, false, logits.data());
      gpu::copy_to_host(pass.logits.data() + first * c.vocab_size, logits.data(),
                        count * c.vocab_size * sizeof(float), stream_);
    }
    stream_.synchronize();
  } else {
    stream_.synchronize();
    return;
  }
  engine::deliver(pass, TapPoint::logits, 0, 1, c.vocab_size, pass.logits);
}

void Cuda::tap(const Pass& pass, TapPoint point, std::size_t layer, std::size_t heads, std::size_t width,
               float* values, std::size_t rows, std::size_t pitch) const {
  if (!wanted(pass, point, layer)) return;
  const std::size_t row = heads * width;
  std::vector<float> host(rows * row);
  for (std::size_t r = 0; r < rows; r += pitch == row ? rows : 1) {
    gpu::copy_to_host(host.data() + r * row, values + r * pitch,
                      (pitch == row ? rows : 1) * row * sizeof(float), stream_);
  }
  stream_.synchronize();
  engine::deliver(pass, point, layer, heads, width, host);
  for (std::size_t r = 0; r < rows; r += pitch == row ? rows : 1) {
    gpu::copy_to_device(values + r * pitch, host.data() + r * row,
                        (pitch == row ? rows : 1) * row * sizeof(float), stream_);
  }
  stream_.synchronize();
}

void Cuda::tap_qkv(const Pass& pass, const KvCache& cache, std::size_t l, float* q) const {
  const model::Config& c = config_;
  const std::size_t rows = pass.tokens.size(), pitch = c.q_width() + 2 * c.kv_width();
  float* const k = q + c.q_width();
  float* const v = k + c.kv_width();
  tap(pass, TapPoint::q, l, c.n_q_heads, c.head_dim, q, rows, pitch);
  tap(pass, TapPoint::k, l, c.n_kv_heads, c.head_dim, k, rows, pitch);
  tap(pass, TapPoint::v, l, c.n_kv_heads, c.head_dim, v, rows, pitch);
  if (!wanted(pass, TapPoint::k, l) && !wanted(pass, TapPoint::v, l)) return;
  gpu::store_kv(stream_, attention_, q, static_cast<int>(rows), static_cast<int>(pass.first_position),
                cache.layer(l));
}

}  // namespace fs::cuda::FS_GPU_BUILD

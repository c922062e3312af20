#include "cuda/backend.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cuda/device_weights.h"
#include "cuda/kv_cache.h"
#include "kernels.h"
#include "runtime.h"

namespace fs::cuda::FS_GPU_BUILD {
namespace {

using engine::LogitRows;
using engine::Pass;
using engine::TapPoint;
using gpu::DeviceArray;

/// Rows of one prefill call at most: bounds the scratch memory.
constexpr std::size_t chunk_rows = 512;
constexpr std::size_t most_head_dim = 256;
constexpr int least_capability = 75;  // times ten: Turing
/// Decode steps that are queued before the host waits, at most.
constexpr std::size_t most_ahead = 16;

/// What the device is told of a sampler; nothing for one that only the host can follow: with penalties, or a
/// draw from more than a few candidates.
std::optional<gpu::Sampling> sampling_of(const engine::Sampler& sampler, std::span<const TokenId> stop_ids) {
  const engine::SamplerOptions& options = sampler.options();
  const std::size_t top_k = std::min(options.top_k, sampler.n_ids());
  const bool draws = options.temperature > 0;
  if (options.repetition_penalty != 1 || options.presence_penalty != 0) return std::nullopt;
  if (draws && (top_k == 0 || top_k > gpu::most_top_k)) return std::nullopt;
  if (stop_ids.size() > gpu::most_stop_ids) return std::nullopt;
  gpu::Sampling result{options.temperature,
                       draws ? static_cast<int>(top_k) : 1,
                       options.top_p,
                       options.min_p,
                       options.seed,
                       static_cast<int>(sampler.n_ids()),
                       static_cast<int>(stop_ids.size()),
                       {}};
  std::copy(stop_ids.begin(), stop_ids.end(), result.stop_ids);
  return result;
}

/// Intermediate results of a pass of `rows` rows.
struct Scratch {
  Scratch(const model::Config& c, std::size_t most_rows)
      : rows(most_rows),
        tokens(rows),
        x(rows * c.hidden),
        normed(rows * c.hidden),
        qkv(rows * (c.q_width() + 2 * c.kv_width())),
        mixed(rows * c.q_width()),
        gate(rows * c.intermediate),
        up(rows * c.intermediate) {}
  std::size_t rows;
  DeviceArray<int> tokens;
  DeviceArray<float> x;         // [rows, hidden] the residual stream
  DeviceArray<float> normed;    // [rows, hidden]
  DeviceArray<float> qkv;       // [rows, q_width + 2·kv_width]
  DeviceArray<float> mixed;     // [rows, q_width]
  DeviceArray<float> gate, up;  // [rows, intermediate]
};

class Cuda final : public engine::Backend {
 public:
  Cuda(const model::Config& config, const model::Weights& weights)
      : config_(config),
        weights_(weights, stream_),
        eps_(static_cast<float>(config.rms_norm_eps)),
        attention_{static_cast<int>(config.n_q_heads), static_cast<int>(config.n_kv_heads),
                   static_cast<int>(config.head_dim)},
        decode_(config_, 1),
        prefill_(config_, 1),
        logits_(config.vocab_size),
        best_logit_(blocks_of_head()),
        best_id_(blocks_of_head()),
        head_peak_(blocks_of_head()),
        head_mass_(blocks_of_head()),
        state_(gpu::state_size),
        sampling_(1),
        chosen_ids_(most_ahead),
        chosen_logs_(most_ahead),
        peak_(gpu::decode_splits * config.n_q_heads),
        mass_(gpu::decode_splits * config.n_q_heads),
        partial_(gpu::decode_splits * config.q_width()),
        host_state_(gpu::state_size),
        host_sampling_(1),
        host_ids_(most_ahead),
        host_logs_(most_ahead),
        host_logits_(config.vocab_size) {}

  std::string_view name() const override { return gpu::backend_name; }
  const model::Config& config() const override { return config_; }
  std::size_t preferred_chunk() const override { return chunk_rows; }
  std::size_t kv_position_bytes() const override {
    return config_.n_layers * 2 * config_.kv_width() * sizeof(float);
  }
  std::unique_ptr<engine::KvCache> make_cache(std::size_t context) const override {
    return std::make_unique<KvCache>(config_, context, stream_);
  }

  void forward(engine::KvCache& kv_cache, const Pass& pass) const override;
  std::size_t continue_with(engine::KvCache& kv_cache, const engine::Continuation& wanted) const override;

 private:
  void decode(KvCache& cache, const Pass& pass) const;
  void prefill(KvCache& cache, const Pass& pass) const;
  void decode_step(const KvCache& cache, const Pass& pass) const;

  bool wanted(const Pass& pass, TapPoint point, std::size_t layer) const {
    return pass.taps != nullptr && pass.taps->wants(point, layer);
  }
  /// Shows [rows, heads, width] to the observer and puts back what it leaves. The rows lie `pitch` apart.
  void tap(const Pass& pass, TapPoint point, std::size_t layer, std::size_t heads, std::size_t width,
           float* values, std::size_t rows, std::size_t pitch) const;
  void tap(const Pass& pass, TapPoint point, std::size_t layer, std::size_t heads, std::size_t width,
           float* values) const {
    tap(pass, point, layer, heads, width, values, pass.tokens.size(), heads * width);
  }
  /// The q, k and v of a rotated qkv; k and v go back into the cache too.
  void tap_qkv(const Pass& pass, const KvCache& cache, std::size_t layer, float* qkv) const;
  gpu::Rotation rotation(const KvCache& cache, std::size_t layer) const {
    return {weights_.layers[layer].q_norm, weights_.layers[layer].k_norm, cache.angles(), eps_};
  }
  /// Sets the decode steps' token and position, and what the head has to know of the sampler.
  void set_state(TokenId token, std::size_t position, const gpu::Sampling& sampling) const;
  gpu::HeadBlocks head_blocks() const {
    return {best_logit_.data(), best_id_.data(), head_peak_.data(), head_mass_.data()};
  }
  gpu::Partials partials() const { return {peak_.data(), mass_.data(), partial_.data()}; }
  std::size_t blocks_of_head() const {
    return static_cast<std::size_t>(gpu::head_blocks(static_cast<int>(config_.vocab_size)));
  }

  model::Config config_;
  mutable gpu::Stream stream_;
  DeviceWeights weights_;
  float eps_;
  gpu::AttentionShape attention_;
  Scratch decode_;  // of one row: recorded steps point into it, so it never moves
  mutable Scratch prefill_;
  // Of the decode step.
  DeviceArray<float> logits_;      // [vocab_size]
  DeviceArray<float> best_logit_;  // HeadBlocks
  DeviceArray<int> best_id_;
  DeviceArray<float> head_peak_;
  DeviceArray<double> head_mass_;
  DeviceArray<int> state_;                    // [state_size]
  DeviceArray<gpu::Sampling> sampling_;       // [1]
  DeviceArray<int> chosen_ids_;               // [most_ahead]
  DeviceArray<double> chosen_logs_;           // [most_ahead] log probabilities
  DeviceArray<float> peak_, mass_, partial_;  // Partials
  gpu::PinnedArray<int> host_state_;          // [state_size]
  gpu::PinnedArray<gpu::Sampling> host_sampling_;
  gpu::PinnedArray<int> host_ids_;
  gpu::PinnedArray<double> host_logs_;
  gpu::PinnedArray<float> host_logits_;  // [vocab_size]
};

void Cuda::forward(engine::KvCache& kv_cache, const Pass& pass) const {
  auto& cache = static_cast<KvCache&>(kv_cache);
  const std::size_t rows = pass.tokens.size();
  cache.grow(pass.first_position + rows);
  if (rows > prefill_.rows) {
    prefill_ = Scratch(config_, std::max(rows, std::min(chunk_rows, 2 * prefill_.rows)));
  }
  rows == 1 ? decode(cache, pass) : prefill(cache, pass);
}

/// One token: the recorded step, or kernel by kernel where somebody watches.
void Cuda::decode(KvCache& cache, const Pass& pass) const {
  set_state(pass.tokens[0], pass.first_position, {.n_ids = static_cast<int>(config_.vocab_size)});
  if (engine::watches(pass.taps, config_.n_layers)) {
    decode_step(cache, pass);
  } else {
    if (!cache.decode_step) {
      cache.decode_step = std::make_unique<gpu::Graph>(stream_, [&] { decode_step(cache, Pass{}); });
    }
    cache.decode_step->launch(stream_);
  }
  if (pass.logit_rows != LogitRows::none) {
    gpu::copy_to_host(host_logits_.data(), logits_.data(), logits_.bytes(), stream_);
  }
  stream_.synchronize();
  if (pass.logit_rows != LogitRows::none) {
    std::copy_n(host_logits_.data(), config_.vocab_size, pass.logits.data());
    engine::deliver(pass, TapPoint::logits, 0, 1, config_.vocab_size, pass.logits);
  }
}

void Cuda::set_state(TokenId token, std::size_t position, const gpu::Sampling& sampling) const {
  int* const state = host_state_.data();
  state[gpu::state_token] = static_cast<int>(token);
  state[gpu::state_position] = static_cast<int>(position);
  state[gpu::state_chosen] = state[gpu::state_stopped] = 0;
  *host_sampling_.data() = sampling;
  gpu::copy_to_device(state_.data(), state, state_.bytes(), stream_);
  gpu::copy_to_device(sampling_.data(), host_sampling_.data(), sampling_.bytes(), stream_);
}

/// Steps that choose the next one's token themselves: queued at once, waited for once.
std::size_t Cuda::continue_with(engine::KvCache& kv_cache, const engine::Continuation& wanted) const {
  auto& cache = static_cast<KvCache&>(kv_cache);
  const std::optional<gpu::Sampling> sampling = sampling_of(wanted.sampler, wanted.stop_ids);
  if (!sampling) return 0;
  const std::size_t steps = std::min(wanted.choices.size(), most_ahead);
  cache.grow(wanted.first_position + steps);
  set_state(wanted.token, wanted.first_position, *sampling);
  if (!cache.choosing_step) {
    cache.choosing_step = std::make_unique<gpu::Graph>(stream_, [&] {
      decode_step(cache, Pass{});
      gpu::sample(stream_, logits_.data(), head_blocks(), static_cast<int>(blocks_of_head()),
                  sampling_.data(), state_.data(), chosen_ids_.data(), chosen_logs_.data());
    });
  }
  for (std::size_t i = 0; i < steps; ++i) cache.choosing_step->launch(stream_);
  gpu::copy_to_host(host_state_.data(), state_.data(), state_.bytes(), stream_);
  gpu::copy_to_host(host_ids_.data(), chosen_ids_.data(), chosen_ids_.bytes(), stream_);
  gpu::copy_to_host(host_logs_.data(), chosen_logs_.data(), chosen_logs_.bytes(), stream_);
  stream_.synchronize();
  const auto chosen = static_cast<std::size_t>(host_state_.data()[gpu::state_chosen]);
  for (std::size_t i = 0; i < chosen; ++i) {
    wanted.choices[i] = {static_cast<TokenId>(host_ids_.data()[i]), host_logs_.data()[i]};
  }
  return chosen;
}

/// The reference's forward in seven kernels a step. Where a tap lies inside a fused kernel and is wanted, the
/// part before it runs by itself, with the same device functions.
void Cuda::decode_step(const KvCache& cache, const Pass& pass) const {
  const model::Config& c = config_;
  float* const x = decode_.x.data();
  float* const normed = decode_.normed.data();
  float* const qkv = decode_.qkv.data();
  const int* const position = state_.data() + gpu::state_position;
  const auto hidden = static_cast<int>(c.hidden);

  gpu::embed(stream_, weights_.embed_tokens, state_.data() + gpu::state_token, 1, x);
  tap(pass, TapPoint::embed, 0, 1, c.hidden, x);

  for (std::size_t l = 0; l < c.n_layers; ++l) {
    const DeviceLayer& w = weights_.layers[l];
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
    gpu::attention_decode(stream_, attention_, qkv, rotated, rotation(cache, l), layer, position, partials());

    const bool merged = wanted(pass, TapPoint::attn_out, l);
    if (merged) {
      gpu::merge_partials(stream_, attention_, partials(), position, decode_.mixed.data());
      tap(pass, TapPoint::attn_out, l, c.n_q_heads, c.head_dim, decode_.mixed.data());
    }
    gpu::attn_out(stream_, attention_, w.o_proj, partials(), position,
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

  const float* head_input = x;
  const float* head_norm = weights_.final_norm;
  if (wanted(pass, TapPoint::final_norm, 0)) {
    gpu::rms_norm(stream_, x, weights_.final_norm, eps_, 1, hidden, normed);
    tap(pass, TapPoint::final_norm, 0, 1, c.hidden, normed);
    head_input = normed;
    head_norm = nullptr;
  }
  if (pass.logit_rows == LogitRows::none) return;
  gpu::head(stream_, weights_.lm_head, head_input, head_norm, eps_, sampling_.data(), logits_.data(),
            head_blocks());
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

  set_state(pass.tokens[0], pass.first_position, {.n_ids = static_cast<int>(config_.vocab_size)});
  const std::vector<int> tokens(pass.tokens.begin(), pass.tokens.end());
  gpu::copy_to_device(prefill_.tokens.data(), tokens.data(), n * sizeof(int), stream_);
  gpu::embed(stream_, weights_.embed_tokens, prefill_.tokens.data(), rows, x);
  tap(pass, TapPoint::embed, 0, 1, c.hidden, x);

  for (std::size_t l = 0; l < c.n_layers; ++l) {
    const DeviceLayer& w = weights_.layers[l];
    const gpu::LayerCache layer = cache.layer(l);

    gpu::rms_norm(stream_, x, w.input_norm, eps_, rows, hidden, normed);
    tap(pass, TapPoint::attn_norm, l, 1, c.hidden, normed);

    gpu::linear(stream_, w.qkv, normed, rows, false, qkv);
    gpu::rotate(stream_, attention_, rotation(cache, l), qkv, rows, start, layer);
    tap_qkv(pass, cache, l, qkv);

    gpu::attention_prefill(stream_, attention_, qkv, layer, rows, start, mixed);
    tap(pass, TapPoint::attn_out, l, c.n_q_heads, c.head_dim, mixed);

    gpu::linear(stream_, w.o_proj, mixed, rows, true, x);
    tap(pass, TapPoint::attn_resid, l, 1, c.hidden, x);

    gpu::rms_norm(stream_, x, w.post_attention_norm, eps_, rows, hidden, normed);
    tap(pass, TapPoint::mlp_norm, l, 1, c.hidden, normed);

    gpu::linear(stream_, w.gate_proj, normed, rows, false, prefill_.gate.data());
    gpu::linear(stream_, w.up_proj, normed, rows, false, prefill_.up.data());
    gpu::swiglu_pairs(stream_, prefill_.gate.data(), prefill_.up.data(), n * c.intermediate,
                      prefill_.gate.data());
    tap(pass, TapPoint::mlp_act, l, 1, c.intermediate, prefill_.gate.data());

    gpu::linear(stream_, w.down_proj, prefill_.gate.data(), rows, true, x);
    tap(pass, TapPoint::block_out, l, 1, c.hidden, x);
  }

  gpu::rms_norm(stream_, x, weights_.final_norm, eps_, rows, hidden, normed);
  tap(pass, TapPoint::final_norm, 0, 1, c.hidden, normed);

  if (pass.logit_rows == LogitRows::last) {
    gpu::head(stream_, weights_.lm_head, normed + (n - 1) * c.hidden, nullptr, eps_, sampling_.data(),
              logits_.data(), head_blocks());
    gpu::copy_to_host(host_logits_.data(), logits_.data(), logits_.bytes(), stream_);
    stream_.synchronize();
    std::copy_n(host_logits_.data(), c.vocab_size, pass.logits.data());
  } else if (pass.logit_rows == LogitRows::all) {
    const DeviceArray<float> all(n * c.vocab_size);
    gpu::linear(stream_, weights_.lm_head, normed, rows, false, all.data());
    gpu::copy_to_host(pass.logits.data(), all.data(), all.bytes(), stream_);
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
  const auto cached = static_cast<std::size_t>(attention_.pitch());
  const gpu::LayerCache layer = cache.layer(l);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t h = 0; h < c.n_kv_heads; ++h) {
      const std::size_t to = ((pass.first_position + r) * c.n_kv_heads + h) * cached;
      const std::size_t from = r * pitch + h * c.head_dim;
      gpu::copy_on_device(layer.keys + to, k + from, c.head_dim * sizeof(float), stream_);
      gpu::copy_on_device(layer.values + to, v + from, c.head_dim * sizeof(float), stream_);
    }
  }
}

}  // namespace

std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              int index) {
  std::string reason;
  const std::vector<gpu::DeviceInfo> found = gpu::devices(reason);
  if (found.empty()) fail(ExitCode::device, "no CUDA device: {}", reason);
  if (index < 0 || static_cast<std::size_t>(index) >= found.size()) {
    fail(ExitCode::device, "CUDA device {}: there are {}, numbered from 0", index, found.size());
  }
  if (config.head_dim > most_head_dim) {
    fail(ExitCode::unusable, "head_dim {}: the CUDA backend takes up to {}; use --backend cpu",
         config.head_dim, most_head_dim);
  }
  const gpu::DeviceInfo& device = found[static_cast<std::size_t>(index)];
  if (10 * device.major + device.minor < least_capability) {
    fail(ExitCode::device, "{}: compute capability {}.{}, the CUDA backend needs {}.{}; use --backend cpu",
         device.name, device.major, device.minor, least_capability / 10, least_capability % 10);
  }
  gpu::select_device(index);
  const std::size_t needed = DeviceWeights::bytes(weights), free = gpu::free_memory();
  if (needed > free) {
    fail(ExitCode::device, "{}: {} MiB free, the weights need {} MiB; use --backend cpu", device.name,
         free >> 20U, needed >> 20U);
  }
  return std::make_unique<Cuda>(config, weights);
}

}  // namespace fs::cuda::FS_GPU_BUILD

#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "cuda/backend.h"
#include "cuda/device_weights.h"
#include "cuda/kv_cache.h"
#include "engine/backend.h"
#include "kernels.h"
#include "runtime.h"

/// The backend's class. passes.cpp holds the layer loops and the taps, choosing.cpp the decode steps that
/// choose their next token themselves.
namespace fs::cuda::FS_GPU_BUILD {

using engine::LogitRows;
using engine::Pass;
using engine::TapPoint;
using gpu::DeviceArray;

/// Rows of one prefill call at most: bounds the scratch memory.
inline constexpr std::size_t chunk_rows = 512;
/// Decode steps that are queued before the host waits, at most.
inline constexpr std::size_t most_ahead = 16;

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

inline gpu::KvFormat kv_format_of(model::Dtype dtype) {
  return dtype == model::Dtype::f16    ? gpu::KvFormat::f16
         : dtype == model::Dtype::bf16 ? gpu::KvFormat::bf16
                                       : gpu::KvFormat::f32;
}

class Cuda final : public engine::Backend {
 public:
  Cuda(const model::Config& config, const model::Weights& weights, const Options& options)
      : config_(config),
        weights_(weights, stream_),
        eps_(static_cast<float>(config.rms_norm_eps)),
        attention_(shape_of(config)),
        kv_(kv_format_of(options.kv)),
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
    return config_.n_layers * 2 * config_.kv_width() * gpu::kv_element_bytes(kv_);
  }
  std::unique_ptr<engine::KvCache> make_cache(std::size_t context) const override {
    return std::make_unique<KvCache>(config_, kv_, context, stream_);
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
  gpu::KvFormat kv_;
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

}  // namespace fs::cuda::FS_GPU_BUILD

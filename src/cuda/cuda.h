#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/backend.h"
#include "cuda/blas.h"
#include "cuda/device_weights.h"
#include "cuda/kv_cache.h"
#include "cuda/persistent_layers.h"
#include "cuda/scratch.h"
#include "engine/backend.h"
#include "kernels.h"
#include "runtime.h"

/// The backend's class. passes.cpp holds the layer loops and the taps, choosing.cpp the decode steps that
/// choose their next token themselves, kernel_times.cpp what benchmarks ask.
namespace fs::cuda::FS_GPU_BUILD {

using engine::LogitRows;
using engine::Pass;
using engine::TapPoint;

class Cuda final : public engine::Backend {
 public:
  Cuda(const model::Config& config, const model::Weights& weights, const Options& options)
      : config_(config),
        chunk_(options.prefill_chunk),
        context_(options.context),
        stream_(options.sync),
        weights_(weights, stream_),
        eps_(static_cast<float>(config.rms_norm_eps)),
        attention_(shape_of(config)),
        kv_(kv_format_of(options.kv)),
        exact_(!options.fast),
        blas_(open_blas(options)),
        decode_(config_, 1),
        state_(config_),
        persistent_(options.persistent ? persistent_layers(weights_, attention_, kv_) : PersistentLayers{}) {
    gpu::clear(state_.arrivals.data(), state_.arrivals.bytes(), stream_);
  }

  std::string_view name() const override { return gpu::backend_name; }
  const model::Config& config() const override { return config_; }
  std::size_t preferred_chunk() const override { return chunk_; }
  std::string_view step() const override { return persistent_.blocks > 0 ? "persistent" : "graph"; }
  const PersistentLayers& persistent() const { return persistent_; }
  std::size_t kv_position_bytes() const override {
    return config_.n_layers * 2 * config_.kv_width() * gpu::kv_element_bytes(kv_);
  }
  std::unique_ptr<engine::KvCache> make_cache(std::size_t context) const override {
    auto cache = std::make_unique<KvCache>(config_, kv_, context, stream_);
    if (context_ > 0) cache->check_fits();
    return cache;
  }

  void forward(engine::KvCache& kv_cache, const Pass& pass) const override;
  std::size_t continue_with(engine::KvCache& kv_cache, const engine::Continuation& wanted) const override;
  double copy_rate() const override;
  std::vector<engine::KernelTime> time_kernels(engine::KvCache& kv_cache, std::size_t position,
                                               std::size_t repetitions) const override;

 private:
  static std::unique_ptr<Blas> open_blas(const Options& options) {
    std::string reason;  // nobody has to know: our own kernel does the same
    return options.fast ? Blas::open(options.cublas.value_or(cublas_names()), reason) : nullptr;
  }

  void decode(KvCache& cache, const Pass& pass) const;
  void prefill(KvCache& cache, const Pass& pass) const;
  void decode_step(const KvCache& cache, const Pass& pass) const;
  void decode_layers(const KvCache& cache, const Pass& pass) const;
  gpu::DecodeLayers all_layers(const KvCache& cache) const;

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

  model::Config config_;
  std::size_t chunk_;
  std::size_t context_;  // that was asked for; 0: none
  mutable gpu::Stream stream_;
  DeviceWeights weights_;
  float eps_;
  gpu::AttentionShape attention_;
  gpu::KvFormat kv_;
  bool exact_;
  std::unique_ptr<Blas> blas_;  // null: there is none, or nothing for it to do
  Scratch decode_;              // of one row: recorded steps point into it, so it never moves
  mutable Scratch prefill_;     // of a chunk, once there is one
  DecodeState state_;
  PersistentLayers persistent_;
};

}  // namespace fs::cuda::FS_GPU_BUILD

#pragma once
#include <memory>

#include "engine/backend.h"
#include "kernels.h"
#include "model/config.h"
#include "runtime.h"

namespace fs::cuda::FS_GPU_BUILD {

/// Keys and values of one timeline, fp32, with the rotary angles of its positions; and the recorded decode
/// step, whose pointers are this cache's. Grows by doubling, never beyond the context.
class KvCache final : public engine::KvCache {
 public:
  KvCache(const model::Config& config, std::size_t context, gpu::Stream& stream);

  /// Makes room for positions [0, positions). Values stay; the recorded step is dropped if they move.
  void grow(std::size_t positions);
  gpu::LayerCache layer(std::size_t index) const;
  const float* angles() const { return angles_.data(); }  ///< [capacity, head_dim / 2, 2]

  std::unique_ptr<gpu::Graph> decode_step;  ///< null until the first step

 private:
  std::size_t half_floats(std::size_t capacity) const;

  const model::Config& config_;
  std::size_t context_, capacity_ = 0;
  gpu::Stream& stream_;
  gpu::DeviceArray<float> memory_;  // [n_layers, 2, capacity, n_kv_heads, pitch]
  gpu::DeviceArray<float> angles_;
};

}  // namespace fs::cuda::FS_GPU_BUILD

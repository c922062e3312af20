#pragma once
#include <memory>

#include "engine/backend.h"
#include "kernels.h"
#include "model/config.h"
#include "model/dtype.h"
#include "runtime.h"

namespace fs::cuda::FS_GPU_BUILD {

/// The widths of a model's attention, for the kernels.
inline gpu::AttentionShape shape_of(const model::Config& config) {
  return {static_cast<int>(config.n_q_heads), static_cast<int>(config.n_kv_heads),
          static_cast<int>(config.head_dim)};
}

inline gpu::KvFormat kv_format_of(model::Dtype dtype) {
  return dtype == model::Dtype::f16    ? gpu::KvFormat::f16
         : dtype == model::Dtype::bf16 ? gpu::KvFormat::bf16
                                       : gpu::KvFormat::f32;
}

/// Keys and values of one timeline, with the rotary angles of its positions; and the recorded decode
/// steps, whose pointers are this cache's. Grows by doubling, never beyond the context; where twice the
/// context would not fit, there is no room to move in, and all of it is taken at once.
class KvCache final : public engine::KvCache {
 public:
  KvCache(const model::Config& config, gpu::KvFormat format, std::size_t context, gpu::Stream& stream);

  /// Bytes that `positions` take, rotary angles included.
  static std::size_t bytes(const model::Config& config, gpu::KvFormat format, std::size_t positions);
  /// Throws Error(device), saying what fits, unless the whole context does.
  void check_fits() const;

  /// Makes room for positions [0, positions). Values stay; the recorded steps are dropped if they move.
  /// Throws Error(device), saying what fits, where there is no memory.
  void grow(std::size_t positions);
  gpu::LayerCache layer(std::size_t index) const;
  /// From one layer's keys, or values, to the next layer's.
  std::size_t layer_bytes() const { return 2 * half_bytes(capacity_); }
  const float* angles() const { return angles_.data(); }  ///< [capacity, head_dim / 2, 2]

  std::unique_ptr<gpu::Graph> decode_step;    ///< null until the first step
  std::unique_ptr<gpu::Graph> choosing_step;  ///< the same, and the choice of the next token

 private:
  /// Bytes of one layer's keys, or values.
  std::size_t half_bytes(std::size_t capacity) const;
  /// Positions to make room for when there have to be `positions`.
  std::size_t next_capacity(std::size_t positions) const;

  const model::Config& config_;
  gpu::KvFormat format_;
  std::size_t context_, capacity_ = 0;
  gpu::Stream& stream_;
  gpu::DeviceArray<unsigned char> memory_;  // [n_layers, 2, capacity, n_kv_heads, pitch]
  gpu::DeviceArray<float> angles_;
};

}  // namespace fs::cuda::FS_GPU_BUILD

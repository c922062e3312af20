#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "cpu/aligned.h"
#include "cpu/kernels.h"
#include "engine/backend.h"
#include "model/config.h"
#include "model/dtype.h"

namespace fs::cpu {

/// Keys (after QK-norm and RoPE) and values, in f32, f16 or bf16, in blocks of positions that are allocated
/// as they are reached. Inside a block each KV head's keys and values lie together as panels, the right-hand
/// sides of q·kᵀ and p·v, so that attention reads them from front to back.
class KvCache final : public engine::KvCache {
 public:
  static constexpr std::size_t block = 128;  // positions; 64 KiB of fp32 keys at head_dim 128

  KvCache(const model::Config& config, const Kernels& kernels, model::Dtype dtype);

  /// Makes room for positions [0, positions).
  void grow(std::size_t positions);

  /// Keys of a block: [block / panel_width][head_dim][panel_width of positions].
  std::byte* keys(std::size_t layer, std::size_t kv_head, std::size_t index) const {
    return layers_[layer][index].data() + kv_head * (head_dim_ + value_width_) * block * element_bytes_;
  }
  /// Values of a block: [value_width() / panel_width][block][panel_width of channels], zero beyond head_dim.
  std::byte* values(std::size_t layer, std::size_t kv_head, std::size_t index) const {
    return keys(layer, kv_head, index) + head_dim_ * block * element_bytes_;
  }
  /// head_dim rounded up to whole panels.
  std::size_t value_width() const { return value_width_; }
  model::Dtype dtype() const { return dtype_; }
  std::size_t element_bytes() const { return element_bytes_; }
  /// What the blocks take, all layers together.
  std::size_t bytes() const;
  const CacheKernels& kernels() const { return kernels_; }

  /// Replaces values by what the cache makes of them.
  void round(std::span<float> x) const;

  /// Stores one head of consecutive positions from `first` on. k, v: [positions, n_kv_heads, head_dim]
  void store(std::size_t layer, std::size_t kv_head, std::size_t first, std::span<const float> k,
             std::span<const float> v);
  /// All heads.
  void store(std::size_t layer, std::size_t first, std::span<const float> k, std::span<const float> v) {
    for (std::size_t head = 0; head < n_kv_heads_; ++head) store(layer, head, first, k, v);
  }

 private:
  const CacheKernels& kernels_;
  model::Dtype dtype_;
  std::size_t n_kv_heads_, head_dim_, value_width_, element_bytes_;
  std::vector<std::vector<AlignedBytes>> layers_;  // [n_layers][blocks]
};

/// Rows of a pass that follow one another on one timeline.
struct Segment {
  KvCache& cache;
  std::size_t first_position, first_row, rows;
};

}  // namespace fs::cpu

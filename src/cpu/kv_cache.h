#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "cpu/aligned.h"
#include "cpu/kernels.h"
#include "engine/backend.h"
#include "model/config.h"

namespace fs::cpu {

/// Keys (after QK-norm and RoPE) and values, fp32, in blocks of positions that are allocated as they are
/// reached. Inside a block each KV head's keys and values lie together as panels, the right-hand sides of
/// q·kᵀ and p·v, so that attention reads them from front to back.
class KvCache final : public engine::KvCache {
 public:
  static constexpr std::size_t block = 128;  // positions; 64 KiB of keys at head_dim 128

  explicit KvCache(const model::Config& config)
      : n_kv_heads_(config.n_kv_heads),
        head_dim_(config.head_dim),
        value_width_((config.head_dim + panel_width - 1) / panel_width * panel_width),
        layers_(config.n_layers) {}

  /// Makes room for positions [0, positions).
  void grow(std::size_t positions) {
    for (auto& blocks : layers_) {
      while (blocks.size() * block < positions) {
        blocks.emplace_back(n_kv_heads_ * (head_dim_ + value_width_) * block);
      }
    }
  }

  /// Keys of a block: [block / panel_width][head_dim][panel_width of positions].
  float* keys(std::size_t layer, std::size_t kv_head, std::size_t index) const {
    return layers_[layer][index].data() + kv_head * (head_dim_ + value_width_) * block;
  }
  /// Values of a block: [value_width() / panel_width][block][panel_width of channels], zero beyond head_dim.
  float* values(std::size_t layer, std::size_t kv_head, std::size_t index) const {
    return keys(layer, kv_head, index) + head_dim_ * block;
  }
  /// head_dim rounded up to whole panels.
  std::size_t value_width() const { return value_width_; }

  /// Stores consecutive positions from `first` on. k, v: [positions, n_kv_heads, head_dim]
  void store(std::size_t layer, std::size_t first, std::span<const float> k, std::span<const float> v) {
    const std::size_t kv_width = n_kv_heads_ * head_dim_, positions = k.size() / kv_width;
    for (std::size_t i = 0; i < positions; ++i) {
      const std::size_t index = (first + i) / block, at = (first + i) % block;
      for (std::size_t head = 0; head < n_kv_heads_; ++head) {
        const float* const key = k.data() + i * kv_width + head * head_dim_;
        const float* const value = v.data() + i * kv_width + head * head_dim_;
        float* const to_keys =
            keys(layer, head, index) + at / panel_width * panel_width * head_dim_ + at % panel_width;
        for (std::size_t d = 0; d < head_dim_; ++d) to_keys[d * panel_width] = key[d];
        float* const to_values = values(layer, head, index) + at * panel_width;
        for (std::size_t d = 0; d < value_width_; ++d) {
          to_values[d / panel_width * panel_width * block + d % panel_width] = d < head_dim_ ? value[d] : 0;
        }
      }
    }
  }

 private:
  std::size_t n_kv_heads_, head_dim_, value_width_;
  std::vector<std::vector<AlignedFloats>> layers_;  // [n_layers][blocks]
};

}  // namespace fs::cpu

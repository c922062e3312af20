#include "cpu/kv_cache.h"

#include <cstdint>
#include <cstring>

namespace fs::cpu {
namespace {

const CacheKernels& kernels_of(const Kernels& kernels, model::Dtype dtype) {
  return dtype == model::Dtype::f16    ? *kernels.cache_f16
         : dtype == model::Dtype::bf16 ? *kernels.cache_bf16
                                       : *kernels.cache_f32;
}

template <class Element>
void copy_element(const std::byte* from, std::size_t from_index, std::byte* to, std::size_t to_index) {
  std::memcpy(to + to_index * sizeof(Element), from + from_index * sizeof(Element), sizeof(Element));
}

/// Puts one head's key and value at position `at` of a block.  key: [dim], value: [value_width] elements
template <class Element>
void place(const std::byte* key, const std::byte* value, std::size_t dim, std::size_t value_width,
           std::size_t at, std::byte* to_keys, std::byte* to_values) {
  const std::size_t first = at / panel_width * panel_width * dim + at % panel_width;
  for (std::size_t d = 0; d < dim; ++d) copy_element<Element>(key, d, to_keys, first + d * panel_width);
  for (std::size_t d = 0; d < value_width; d += panel_width) {
    std::memcpy(to_values + (d * KvCache::block + at * panel_width) * sizeof(Element),
                value + d * sizeof(Element), panel_width * sizeof(Element));
  }
}

}  // namespace

KvCache::KvCache(const model::Config& config, const Kernels& kernels, model::Dtype dtype)
    : kernels_(kernels_of(kernels, dtype)),
      dtype_(dtype),
      n_kv_heads_(config.n_kv_heads),
      head_dim_(config.head_dim),
      value_width_((config.head_dim + panel_width - 1) / panel_width * panel_width),
      element_bytes_(model::block_bytes(dtype)),
      layers_(config.n_layers) {}

void KvCache::grow(std::size_t positions) {
  for (auto& blocks : layers_) {
    while (blocks.size() * block < positions) {
      blocks.emplace_back(n_kv_heads_ * (head_dim_ + value_width_) * block * element_bytes_);
    }
  }
}

std::size_t KvCache::bytes() const {
  std::size_t sum = 0;
  for (const auto& blocks : layers_) {
    for (const AlignedBytes& one : blocks) sum += one.size();
  }
  return sum;
}

void KvCache::round(std::span<float> x) const {
  if (dtype_ == model::Dtype::f32) return;
  std::vector<std::byte> stored(x.size() * element_bytes_);
  kernels_.store(x.data(), x.size(), stored.data());
  model::decode(dtype_, stored.data(), x);
}

void KvCache::store(std::size_t layer, std::size_t kv_head, std::size_t first, std::span<const float> k,
                    std::span<const float> v) {
  const std::size_t kv_width = n_kv_heads_ * head_dim_, positions = k.size() / kv_width;
  std::vector<std::byte> key(head_dim_ * element_bytes_);
  std::vector<std::byte> value(value_width_ * element_bytes_);  // zero beyond head_dim
  for (std::size_t i = 0; i < positions; ++i) {
    const std::size_t from = i * kv_width + kv_head * head_dim_;
    kernels_.store(k.data() + from, head_dim_, key.data());
    kernels_.store(v.data() + from, head_dim_, value.data());
    const std::size_t index = (first + i) / block, at = (first + i) % block;
    const auto put = element_bytes_ == sizeof(float) ? place<std::uint32_t> : place<std::uint16_t>;
    put(key.data(), value.data(), head_dim_, value_width_, at, keys(layer, kv_head, index),
        values(layer, kv_head, index));
  }
}

}  // namespace fs::cpu

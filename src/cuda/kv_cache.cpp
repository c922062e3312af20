#include "cuda/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/memory_error.h"
#include "cuda/memory_plan.h"

namespace fs::cuda::FS_GPU_BUILD {
namespace {

constexpr std::size_t first_capacity = 256;

/// Cosines and sines of positions [0, positions), in double as the reference's: at position 40,000 an angle
/// in fp32 would be wrong by 0.004.
std::vector<float> rotary_angles(const model::Config& config, std::size_t positions) {
  const std::size_t half = config.head_dim / 2;
  std::vector<double> frequencies(half);
  for (std::size_t i = 0; i < half; ++i) {
    const double exponent = -2 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    frequencies[i] = std::pow(config.rope_theta, exponent);
  }
  std::vector<float> angles;
  angles.reserve(positions * config.head_dim);
  for (std::size_t p = 0; p < positions; ++p) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(p) * frequency;
      angles.push_back(static_cast<float>(std::cos(angle)));
      angles.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return angles;
}

}  // namespace

KvCache::KvCache(const model::Config& config, gpu::KvFormat format, std::size_t context, gpu::Stream& stream)
    : config_(config), format_(format), context_(context), stream_(stream) {}

std::size_t KvCache::half_bytes(std::size_t capacity) const {
  return capacity * config_.n_kv_heads * static_cast<std::size_t>(shape_of(config_).pitch()) *
         gpu::kv_element_bytes(format_);
}

std::size_t KvCache::bytes(const model::Config& config, gpu::KvFormat format, std::size_t positions) {
  const auto pitch = static_cast<std::size_t>(shape_of(config).pitch());
  return positions * (config.n_layers * 2 * config.n_kv_heads * pitch * gpu::kv_element_bytes(format) +
                      config.head_dim * sizeof(float));
}

void KvCache::check_fits() const {
  const std::size_t needed = bytes(config_, format_, context_), free = gpu::free_memory();
  if (needed <= free) return;
  throw MemoryError(
      ExitCode::device,
      fmt::format("a context of {} tokens needs {} MiB of keys and values, {} MiB are free: {} tokens fit",
                  context_, mebibytes(needed), mebibytes(free), free / bytes(config_, format_, 1)));
}

std::size_t KvCache::next_capacity(std::size_t positions) const {
  const std::size_t free = gpu::free_memory();
  const auto fits = [&](std::size_t count) { return bytes(config_, format_, count) <= free; };
  if (capacity_ == 0 && fits(context_) && !fits(2 * context_)) return context_;
  const std::size_t doubled = std::min(context_, std::max({positions, 2 * capacity_, first_capacity}));
  if (fits(doubled)) return doubled;
  if (fits(positions)) return positions;
  // What there is now would be free for a cache that takes it all from the start.
  throw MemoryError(
      ExitCode::device,
      fmt::format("no device memory for the keys and values of {} tokens, {} MiB are free: {} tokens fit",
                  positions, mebibytes(free), capacity_ + free / bytes(config_, format_, 1)));
}

void KvCache::grow(std::size_t positions) {
  if (positions <= capacity_) return;
  const std::size_t capacity = next_capacity(positions);
  decode_step.reset();
  choosing_step.reset();
  stream_.synchronize();
  gpu::DeviceArray<unsigned char> memory(config_.n_layers * 2 * half_bytes(capacity));
  gpu::DeviceArray<float> angles(capacity * config_.head_dim);
  for (std::size_t half = 0; capacity_ > 0 && half < 2 * config_.n_layers; ++half) {
    gpu::copy_on_device(memory.data() + half * half_bytes(capacity),
                        memory_.data() + half * half_bytes(capacity_), half_bytes(capacity_), stream_);
  }
  const std::vector<float> turns = rotary_angles(config_, capacity);
  gpu::copy_to_device(angles.data(), turns.data(), angles.bytes(), stream_);
  stream_.synchronize();
  memory_ = std::move(memory);
  angles_ = std::move(angles);
  capacity_ = capacity;
}

gpu::LayerCache KvCache::layer(std::size_t index) const {
  unsigned char* const keys = memory_.data() + 2 * index * half_bytes(capacity_);
  return {format_, keys, keys + half_bytes(capacity_)};
}

}  // namespace fs::cuda::FS_GPU_BUILD

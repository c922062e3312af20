#pragma once
#include "gpu.h"
#include "weight_formats.h"

/// The core of every matrix · vector product: one warp a row, the activations staged in shared memory, the
/// row's first chunks on their way before the activations are there.
namespace fs::gpu {
inline namespace FS_GPU_BUILD {

inline constexpr int gemv_threads = 256;
inline constexpr int gemv_warps = gemv_threads / 32;
inline constexpr unsigned gemv_blocks(int rows) {
  return static_cast<unsigned>((rows + gemv_warps - 1) / gemv_warps);
}
/// Shared memory for the staged activations of a row of `chunks`.
template <class Weights>
constexpr std::size_t staged_bytes(int chunks) {
  return static_cast<std::size_t>(chunks * Weights::per_chunk) * sizeof(float);
}

/// Where value i of the activations lies in shared memory. The four-value parts of a chunk lie in planes of
/// their own, so that the 32 lanes read 32 consecutive vectors: no bank conflicts.
template <class Weights>
FS_DEVICE int staged_at(int i, int chunks) {
  const int chunk = i / Weights::per_chunk, part = i % Weights::per_chunk / 4;
  return (part * chunks + chunk) * 4 + i % 4;
}

/// Sum over the block, the same in every thread. `parts`: [warps] in shared memory, not in use.
FS_DEVICE float block_sum(float value, float* parts) {
  value = lanes_sum(value);
  if (lane_index() == 0) parts[warp_index()] = value;
  sync_threads();
  float sum = 0;
  for (int w = 0; w < block_threads() / 32; ++w) sum += parts[w];
  return sum;
}

/// 1 / sqrt(mean(x²) + eps), by the whole block.  x: [width]
FS_DEVICE float rms_scale(const float* x, int width, float eps, float* parts) {
  float squares = 0;
  for (int i = thread_index(); i < width; i += block_threads()) squares = fma(x[i], x[i], squares);
  return inverse_sqrt(block_sum(squares, parts) / static_cast<float>(width) + eps);
}

/// Stages rms_norm(x), or x where norm is null, for rows of `chunks`. The caller synchronises.  x: [cols]
template <class Weights>
FS_DEVICE void stage(const float* x, const float* norm, float eps, int cols, int chunks, float* staged) {
  FS_SHARED(float, parts, [gemv_warps]);
  const float scale = norm == nullptr ? 1.0F : rms_scale(x, cols, eps, parts);
  for (int i = thread_index(); i < chunks * Weights::per_chunk; i += block_threads()) {
    float value = 0;
    if (i < cols) value = norm == nullptr ? x[i] : x[i] * scale * norm[i];
    staged[staged_at<Weights>(i, chunks)] = value;
  }
}

/// One row of a matrix on its way through a warp. `ahead`: chunks a lane holds in registers.
template <class Weights, int ahead>
class Row {
 public:
  /// Starts loading.  A row that is not there reads as nothing.
  FS_DEVICE Row(const unsigned char* matrix, int row, int rows, int chunks)
      : data_(matrix + static_cast<std::size_t>(row) * static_cast<std::size_t>(chunks) * 16),
        end_(row < rows ? chunks : 0),
        chunks_(chunks) {
    fetch(lane_index());
  }

  /// Row · activations: the same in every lane.
  FS_DEVICE float dot(const float* staged) {
    float sum = 0;
    for (int first = lane_index(); first < end_;) {
      FS_UNROLL
      for (int i = 0; i < ahead; ++i) {
        if (first + 32 * i < end_) sum += chunk_dot(held_[i], staged, first + 32 * i);
      }
      first += 32 * ahead;
      fetch(first);
    }
    return lanes_sum(sum);
  }

 private:
  FS_DEVICE void fetch(int first) {
    FS_UNROLL
    for (int i = 0; i < ahead; ++i) {
      const int chunk = first + 32 * i;
      if (chunk < end_) held_[i] = load_streaming(data_ + static_cast<std::size_t>(chunk) * 16);
    }
  }
  FS_DEVICE float chunk_dot(const U32x4& chunk, const float* staged, int index) const {
    float w[Weights::per_chunk];
    Weights::decode(chunk, w);
    float sum = 0;
    FS_UNROLL
    for (int part = 0; part < Weights::per_chunk / 4; ++part) {
      const F32x4 x = load4(staged + (part * chunks_ + index) * 4);
      sum = fma(w[4 * part], x.x, sum);
      sum = fma(w[4 * part + 1], x.y, sum);
      sum = fma(w[4 * part + 2], x.z, sum);
      sum = fma(w[4 * part + 3], x.w, sum);
    }
    return sum;
  }

  const unsigned char* data_;
  int end_, chunks_;
  U32x4 held_[ahead];
};

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

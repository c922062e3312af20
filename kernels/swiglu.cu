#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

FS_DEVICE float silu(float x) { return x / (1.0F + exp(-x)); }

/// A warp takes the same rows of gate_proj and up_proj.
template <class Weights>
FS_KERNEL(gemv_threads)
swiglu_kernel(const unsigned char* gate, const F16* gate_scales, const unsigned char* up,
              const F16* up_scales, int rows, int cols, int chunks, const float* x, const float* norm,
              float eps, float* act) {
  FS_DYNAMIC_SHARED(float, staged);
  constexpr int at_once = rows_at_once<Weights>;
  const int row = (block_x() * gemv_warps + warp_index()) * at_once;
  Rows<Weights, 2, at_once, chunks_ahead<Weights, 1024>> weights(
      {{gate, gate_scales, rows, chunks}, {up, up_scales, rows, chunks}}, row);
  wait_for_previous_kernel();
  stage<Weights>(x, norm, eps, cols, chunks, staged);
  sync_threads();
  float sums[2 * at_once];
  weights.dot(staged, sums);
  if (lane_index() != 0) return;
  FS_UNROLL
  for (int i = 0; i < at_once; ++i) {
    if (row + i < rows) act[row + i] = silu(sums[2 * i]) * sums[2 * i + 1];
  }
}

constexpr int pair_threads = 256;

FS_KERNEL(pair_threads)
swiglu_pairs_kernel(const float* gate, const float* up, std::size_t count, float* act) {
  wait_for_previous_kernel();
  const auto step = static_cast<std::size_t>(grid_x()) * pair_threads;
  for (std::size_t i =
           static_cast<std::size_t>(block_x()) * pair_threads + static_cast<std::size_t>(thread_index());
       i < count; i += step) {
    act[i] = silu(gate[i]) * up[i];
  }
}

}  // namespace

void swiglu(Stream& stream, const DeviceMatrix& gate, const DeviceMatrix& up, const float* x,
            const float* norm, float eps, float* act) {
  with_format(gate.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"swiglu", gemv_blocks(gate.rows, rows_at_once<Weights>), 1, gemv_threads,
            staged_bytes<Weights>(gate.chunks)},
           swiglu_kernel<Weights>, gate.data, gate.scales, up.data, up.scales, gate.rows, gate.cols,
           gate.chunks, x, norm, eps, act);
  });
}

void swiglu_pairs(Stream& stream, const float* gate, const float* up, std::size_t count, float* act) {
  const std::size_t blocks = (count + pair_threads - 1) / pair_threads;
  launch(stream, {"swiglu_pairs", static_cast<unsigned>(blocks < 1024 ? blocks : 1024), 1, pair_threads},
         swiglu_pairs_kernel, gate, up, count, act);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

FS_DEVICE float silu(float x) { return x / (1.0F + exp(-x)); }

/// A warp a pair of rows: the same one of gate_proj and up_proj.
template <class Weights>
FS_KERNEL(gemv_threads)
swiglu_kernel(const unsigned char* gate, const unsigned char* up, int rows, int cols, int chunks,
              const float* x, const float* norm, float eps, float* act) {
  FS_DYNAMIC_SHARED(float, staged);
  const int row = block_x() * gemv_warps + warp_index();
  Row<Weights, 4> gate_row(gate, row, rows, chunks);
  Row<Weights, 4> up_row(up, row, rows, chunks);
  wait_for_previous_kernel();
  stage<Weights>(x, norm, eps, cols, chunks, staged);
  sync_threads();
  const float g = gate_row.dot(staged);
  const float u = up_row.dot(staged);
  if (lane_index() == 0 && row < rows) act[row] = silu(g) * u;
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
    launch(stream, {"swiglu", gemv_blocks(gate.rows), 1, gemv_threads, staged_bytes<Weights>(gate.chunks)},
           swiglu_kernel<Weights>, gate.data, up.data, gate.rows, gate.cols, gate.chunks, x, norm, eps, act);
  });
}

void swiglu_pairs(Stream& stream, const float* gate, const float* up, std::size_t count, float* act) {
  const std::size_t blocks = (count + pair_threads - 1) / pair_threads;
  launch(stream, {"swiglu_pairs", static_cast<unsigned>(blocks < 1024 ? blocks : 1024), 1, pair_threads},
         swiglu_pairs_kernel, gate, up, count, act);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// A warp a row; 3072 columns are 12 chunks a lane, all ahead.
template <class Weights>
FS_KERNEL(gemv_threads)
mlp_down_kernel(const unsigned char* down, int rows, int cols, int chunks, const float* act, float* x) {
  FS_DYNAMIC_SHARED(float, staged);
  const int row = block_x() * gemv_warps + warp_index();
  Row<Weights, 12> weights(down, row, rows, chunks);
  wait_for_previous_kernel();
  stage<Weights>(act, nullptr, 0.0F, cols, chunks, staged);
  sync_threads();
  const float sum = weights.dot(staged);
  if (lane_index() == 0 && row < rows) x[row] += sum;
}

}  // namespace

void mlp_down(Stream& stream, const DeviceMatrix& down, const float* act, float* x) {
  with_format(down.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream, {"mlp_down", gemv_blocks(down.rows), 1, gemv_threads, staged_bytes<Weights>(down.chunks)},
           mlp_down_kernel<Weights>, down.data, down.rows, down.cols, down.chunks, act, x);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

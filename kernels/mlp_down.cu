#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// A warp a row: there are too few rows for more.
template <class Weights>
FS_KERNEL(gemv_threads)
mlp_down_kernel(const unsigned char* down, const F16* scales, int rows, int cols, int chunks,
                const float* act, float* x) {
  FS_DYNAMIC_SHARED(float, staged);
  const int row = block_x() * gemv_warps + warp_index();
  Rows<Weights, 1, 1, chunks_ahead<Weights, 3072>> weights({{down, scales, rows, chunks}}, row);
  wait_for_previous_kernel();
  stage<Weights>(act, nullptr, 0.0F, cols, chunks, staged);
  sync_threads();
  float sum[1];
  weights.dot(staged, sum);
  if (lane_index() == 0 && row < rows) x[row] += sum[0];
}

}  // namespace

void mlp_down(Stream& stream, const DeviceMatrix& down, const float* act, float* x) {
  with_format(down.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream, {"mlp_down", gemv_blocks(down.rows), 1, gemv_threads, staged_bytes<Weights>(down.chunks)},
           mlp_down_kernel<Weights>, down.data, down.scales, down.rows, down.cols, down.chunks, act, x);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

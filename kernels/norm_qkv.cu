#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// A warp a row of the concatenated q, k and v projections. 1024 columns are 4 chunks a lane, all ahead.
template <class Weights>
FS_KERNEL(gemv_threads)
norm_qkv_kernel(const unsigned char* qkv, int rows, int cols, int chunks, const float* x, const float* norm,
                float eps, float* out) {
  FS_DYNAMIC_SHARED(float, staged);
  const int row = block_x() * gemv_warps + warp_index();
  Row<Weights, 4> weights(qkv, row, rows, chunks);
  wait_for_previous_kernel();
  stage<Weights>(x, norm, eps, cols, chunks, staged);
  sync_threads();
  const float sum = weights.dot(staged);
  if (lane_index() == 0 && row < rows) out[row] = sum;
}

}  // namespace

void norm_qkv(Stream& stream, const DeviceMatrix& qkv, const float* x, const float* norm, float eps,
              float* out) {
  with_format(qkv.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream, {"norm_qkv", gemv_blocks(qkv.rows), 1, gemv_threads, staged_bytes<Weights>(qkv.chunks)},
           norm_qkv_kernel<Weights>, qkv.data, qkv.rows, qkv.cols, qkv.chunks, x, norm, eps, out);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

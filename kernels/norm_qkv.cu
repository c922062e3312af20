#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// The concatenated q, k and v projections.
template <class Weights>
FS_KERNEL(gemv_threads)
norm_qkv_kernel(const unsigned char* qkv, const F16* scales, int rows, int cols, int chunks, const float* x,
                const float* norm, float eps, float* out) {
  FS_DYNAMIC_SHARED(float, staged);
  constexpr int at_once = rows_at_once<Weights>;
  const int row = (block_x() * gemv_warps + warp_index()) * at_once;
  Rows<Weights, 1, at_once, chunks_ahead<Weights, 1024>> weights({{qkv, scales, rows, chunks}}, row);
  wait_for_previous_kernel();
  stage<Weights>(x, norm, eps, cols, chunks, staged);
  sync_threads();
  float sums[at_once];
  weights.dot(staged, sums);
  if (lane_index() != 0) return;
  FS_UNROLL
  for (int i = 0; i < at_once; ++i) {
    if (row + i < rows) out[row + i] = sums[i];
  }
}

}  // namespace

void norm_qkv(Stream& stream, const DeviceMatrix& qkv, const float* x, const float* norm, float eps,
              float* out) {
  with_format(qkv.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"norm_qkv", gemv_blocks(qkv.rows, rows_at_once<Weights>), 1, gemv_threads,
            staged_bytes<Weights>(qkv.chunks)},
           norm_qkv_kernel<Weights>, qkv.data, qkv.scales, qkv.rows, qkv.cols, qkv.chunks, x, norm, eps, out);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// One block a row; the sum runs as in the fused kernels, so that both give the same bits.
FS_KERNEL(gemv_threads)
rms_norm_kernel(const float* x, const float* weight, float eps, int width, float* out) {
  FS_SHARED(float, parts, [gemv_warps]);
  wait_for_previous_kernel();
  const std::size_t row = static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(width);
  const float scale = rms_scale(x + row, width, eps, parts);
  for (int i = thread_index(); i < width; i += gemv_threads) {
    const std::size_t at = row + static_cast<std::size_t>(i);
    out[at] = x[at] * scale * weight[i];
  }
}

}  // namespace

void rms_norm(Stream& stream, const float* x, const float* weight, float eps, int rows, int width,
              float* out) {
  launch(stream, {"rms_norm", static_cast<unsigned>(rows), 1, gemv_threads}, rms_norm_kernel, x, weight, eps,
         width, out);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

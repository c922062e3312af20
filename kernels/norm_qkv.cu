#include "norm_qkv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

template <class Weights>
FS_KERNEL(gemv_threads)
norm_qkv_kernel(const unsigned char* qkv, const F16* scales, int rows, int cols, int chunks, const float* x,
                const float* norm, float eps, float* out) {
  FS_DYNAMIC_SHARED(float, staged);
  norm_qkv_rows<Weights>(AsKernel{}, {qkv, scales, rows, chunks}, cols, x, norm, eps, out, staged);
}

}  // namespace

void norm_qkv(Stream& stream, const DeviceMatrix& qkv, const float* x, const float* norm, float eps,
              float* out) {
  with_format(qkv.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"norm_qkv",
            gemv_blocks(qkv.rows, rows_at_once<Weights>),
            1,
            gemv_threads,
            staged_bytes<Weights>(qkv.chunks),
            {stored_bytes(qkv)}},
           norm_qkv_kernel<Weights>, qkv.data, qkv.scales, qkv.rows, qkv.cols, qkv.chunks, x, norm, eps, out);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#include "mlp_down.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

template <class Weights>
FS_KERNEL(gemv_threads)
mlp_down_kernel(const unsigned char* down, const F16* scales, int rows, int cols, int chunks,
                const float* act, float* x) {
  FS_DYNAMIC_SHARED(float, staged);
  mlp_down_rows<Weights>(AsKernel{}, {down, scales, rows, chunks}, cols, act, x, staged);
}

}  // namespace

void mlp_down(Stream& stream, const DeviceMatrix& down, const float* act, float* x) {
  with_format(down.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"mlp_down",
            gemv_blocks(down.rows),
            1,
            gemv_threads,
            staged_bytes<Weights>(down.chunks),
            {stored_bytes(down)}},
           mlp_down_kernel<Weights>, down.data, down.scales, down.rows, down.cols, down.chunks, act, x);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#pragma once
#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// out = W·rms_norm(x), or W·x where norm is null.  qkv: the concatenated q, k and v projections; staged:
/// staged_bytes of shared memory
template <class Weights, class Run>
FS_DEVICE void norm_qkv_rows(Run run, const MatrixPlanes& qkv, int cols, const float* x, const float* norm,
                             float eps, float* out, float* staged) {
  each_row<Weights, rows_at_once<Weights>, chunks_ahead<Weights, 1024>>(
      run, {qkv}, staged, [&] { stage<Weights>(x, norm, eps, cols, qkv.chunks, staged); },
      [&](int row, const float* sum) { out[row] = sum[0]; });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

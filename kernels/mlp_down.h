#pragma once
#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// x += down_proj·act. A warp a row: there are too few rows for more.  staged: staged_bytes of shared memory
template <class Weights, class Run>
FS_DEVICE void mlp_down_rows(Run run, const MatrixPlanes& down, int cols, const float* act, float* x,
                             float* staged) {
  each_row<Weights, 1, chunks_ahead<Weights, 3072>>(
      run, {down}, staged, [&] { stage<Weights>(act, nullptr, 0.0F, cols, down.chunks, staged); },
      [&](int row, const float* sum) { x[row] += sum[0]; });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#pragma once
#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {

FS_DEVICE float silu(float x) { return x / (1.0F + exp(-x)); }

/// Rows of each matrix that a warp takes at once. Among other stages there are registers for half of them.
template <class Weights, class Run>
inline constexpr int swiglu_rows_each = Run::one_pass ? rows_at_once<Weights>
                                                      : (rows_at_once<Weights> + 1) / 2;

/// act = silu(gate·n)·(up·n), n = rms_norm(x), or x where norm is null. A warp takes the same rows of both.
/// staged: staged_bytes of shared memory
template <class Weights, class Run>
FS_DEVICE void swiglu_rows(Run run, const MatrixPlanes& gate, const MatrixPlanes& up, int cols,
                           const float* x, const float* norm, float eps, float* act, float* staged) {
  each_row<Weights, swiglu_rows_each<Weights, Run>, chunks_ahead<Weights, 1024>>(
      run, {gate, up}, staged, [&] { stage<Weights>(x, norm, eps, cols, gate.chunks, staged); },
      [&](int row, const float* sums) { act[row] = silu(sums[0]) * sums[1]; });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

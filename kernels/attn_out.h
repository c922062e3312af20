#pragma once
#include "attention.h"
#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// x += o_proj·mixed, with mixed merged from the partials where the pointer is null. A warp a row: there are
/// too few rows for more. Every block merges all heads for itself: with 8 rows a block that is less traffic
/// than one more kernel costs in time.  staged: staged_bytes of shared memory
template <class Weights, class Run>
FS_DEVICE void attn_out_rows(Run run, const MatrixPlanes& o_proj, int cols, int n_q_heads, int head_dim,
                             const Partials& partials, const int* position, const float* mixed, float* x,
                             float* staged) {
  const int chunks = o_proj.chunks;
  each_row<Weights, 1, chunks_ahead<Weights, 2048>>(
      run, {o_proj}, staged,
      [&] {
        if (mixed != nullptr) {
          stage<Weights>(mixed, nullptr, 0.0F, cols, chunks, staged);
          return;
        }
        const int splits = chunk_count(*position + 1);
        for (int i = thread_index(); i < chunks * Weights::per_chunk; i += gemv_threads) {
          staged[staged_at<Weights>(i, chunks)] =
              i < cols ? merged(partials, splits, n_q_heads, head_dim, i / head_dim, i % head_dim) : 0.0F;
        }
      },
      [&](int row, const float* sum) { x[row] += sum[0]; });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

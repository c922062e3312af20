#include "attention.h"
#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// A warp a row: there are too few rows for more. Every block merges all heads for itself: with
/// 8 rows a block that is less traffic than one more kernel costs in time.
template <class Weights>
FS_KERNEL(gemv_threads)
attn_out_kernel(const unsigned char* o_proj, const F16* scales, int rows, int cols, int chunks, int n_q_heads,
                int head_dim, const float* peak, const float* mass, const float* partial, const int* position,
                const float* mixed, float* x) {
  FS_DYNAMIC_SHARED(float, staged);
  const int row = block_x() * gemv_warps + warp_index();
  Rows<Weights, 1, 1, chunks_ahead<Weights, 2048>> weights({{o_proj, scales, rows, chunks}}, row);
  wait_for_previous_kernel();
  if (mixed != nullptr) {
    stage<Weights>(mixed, nullptr, 0.0F, cols, chunks, staged);
  } else {
    const int splits = chunk_count(*position + 1);
    for (int i = thread_index(); i < chunks * Weights::per_chunk; i += gemv_threads) {
      staged[staged_at<Weights>(i, chunks)] =
          i < cols ? merged(peak, mass, partial, splits, n_q_heads, head_dim, i / head_dim, i % head_dim)
                   : 0.0F;
    }
  }
  sync_threads();
  float sum[1];
  weights.dot(staged, sum);
  if (lane_index() == 0 && row < rows) x[row] += sum[0];
}

}  // namespace

void attn_out(Stream& stream, const AttentionShape& shape, const DeviceMatrix& o_proj,
              const Partials& partials, const int* position, const float* mixed, float* x) {
  with_format(o_proj.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"attn_out", gemv_blocks(o_proj.rows), 1, gemv_threads, staged_bytes<Weights>(o_proj.chunks)},
           attn_out_kernel<Weights>, o_proj.data, o_proj.scales, o_proj.rows, o_proj.cols, o_proj.chunks,
           shape.n_q_heads, shape.head_dim, static_cast<const float*>(partials.peak),
           static_cast<const float*>(partials.mass), static_cast<const float*>(partials.mixed), position,
           mixed, x);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

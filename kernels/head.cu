#include "better.h"
#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// The final norm, the head and the first step of the choice. The rows of a block go round its warps.
template <class Weights>
FS_KERNEL(gemv_threads)
head_kernel(const unsigned char* lm_head, const F16* scales, int rows, int cols, int chunks, const float* x,
            const float* norm, float eps, const Sampling* sampling, float* logits, float* best_logit,
            int* best_id, float* peak, double* mass) {
  FS_DYNAMIC_SHARED(float, staged);
  FS_SHARED(float, found, [head_rows_per_block]);
  constexpr int at_once = rows_at_once<Weights>;
  using WarpRows = Rows<Weights, 1, at_once, chunks_ahead<Weights, 1024>>;
  const int first = block_x() * head_rows_per_block, last = min(rows, first + head_rows_per_block);
  const MatrixPlanes matrix = {lm_head, scales, last, chunks};
  int row = first + warp_index() * at_once;
  WarpRows weights({matrix}, row);
  wait_for_previous_kernel();
  stage<Weights>(x, norm, eps, cols, chunks, staged);
  sync_threads();
  for (; row < last; row += gemv_warps * at_once) {
    WarpRows now = weights;
    weights = WarpRows({matrix}, row + gemv_warps * at_once);
    float sums[at_once];
    now.dot(staged, sums);
    FS_UNROLL
    for (int i = 0; i < at_once; ++i) {
      if (lane_index() != 0 || row + i >= last) continue;
      logits[row + i] = sums[i];
      found[row + i - first] = sums[i];
    }
  }
  sync_threads();
  if (warp_index() != 0) return;
  float best = -infinity(), top = -infinity();
  int id = 0x7FFFFFFF;
  bool finite = true;
  for (int i = first + lane_index(); i < last; i += 32) {
    const float logit = found[i - first];
    if (i < sampling->n_ids && better(logit, i, best, id)) {
      best = logit;
      id = i;
    }
    top = max(top, logit);
    finite = finite && logit < infinity() && logit > -infinity();
  }
  best_of_lanes(best, id);
  top = lanes_max(top);
  double sum = 0;
  for (int i = first + lane_index(); i < last; i += 32) {
    sum += exp(static_cast<double>(found[i - first]) - static_cast<double>(top));
  }
  sum = lanes_total(sum);
  finite = all_of_warp(finite);
  if (lane_index() != 0) return;
  best_logit[block_x()] = best;
  best_id[block_x()] = id;
  peak[block_x()] = top;
  mass[block_x()] = finite ? sum : static_cast<double>(infinity() - infinity());
}

}  // namespace

void head(Stream& stream, const DeviceMatrix& lm_head, const float* x, const float* norm, float eps,
          const Sampling* sampling, float* logits, const HeadBlocks& found) {
  with_format(lm_head.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"head",
            static_cast<unsigned>(head_blocks(lm_head.rows)),
            1,
            gemv_threads,
            staged_bytes<Weights>(lm_head.chunks),
            {stored_bytes(lm_head)}},
           head_kernel<Weights>, lm_head.data, lm_head.scales, lm_head.rows, lm_head.cols, lm_head.chunks, x,
           norm, eps, sampling, logits, found.best_logit, found.best_id, found.peak, found.mass);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#include "gemv.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// Whether (a, a_id) comes before (b, b_id): the larger logit, then the lower id.
FS_DEVICE bool better(float a, int a_id, float b, int b_id) { return a > b || (a == b && a_id < b_id); }

/// The final norm, the head and the first step of the argmax. The rows of a block go round its warps.
template <class Weights>
FS_KERNEL(gemv_threads)
head_kernel(const unsigned char* lm_head, const F16* scales, int rows, int cols, int chunks, const float* x,
            const float* norm, float eps, float* logits, float* best_logit, int* best_id) {
  FS_DYNAMIC_SHARED(float, staged);
  FS_SHARED(float, warp_logit, [gemv_warps]);
  FS_SHARED(int, warp_id, [gemv_warps]);
  constexpr int at_once = rows_at_once<Weights>;
  using WarpRows = Rows<Weights, 1, at_once, chunks_ahead<Weights, 1024>>;
  const MatrixPlanes matrix = {lm_head, scales, min(rows, (block_x() + 1) * head_rows_per_block), chunks};
  int row = block_x() * head_rows_per_block + warp_index() * at_once;
  WarpRows weights({matrix}, row);
  wait_for_previous_kernel();
  stage<Weights>(x, norm, eps, cols, chunks, staged);
  sync_threads();
  float best = -infinity();
  int id = rows;
  for (; row < matrix.rows; row += gemv_warps * at_once) {
    WarpRows now = weights;
    weights = WarpRows({matrix}, row + gemv_warps * at_once);
    float found[at_once];
    now.dot(staged, found);
    FS_UNROLL
    for (int i = 0; i < at_once; ++i) {
      if (row + i >= matrix.rows) continue;
      if (lane_index() == 0) logits[row + i] = found[i];
      if (better(found[i], row + i, best, id)) {
        best = found[i];
        id = row + i;
      }
    }
  }
  if (lane_index() == 0) {
    warp_logit[warp_index()] = best;
    warp_id[warp_index()] = id;
  }
  sync_threads();
  if (thread_index() == 0) {
    for (int w = 1; w < gemv_warps; ++w) {
      if (better(warp_logit[w], warp_id[w], best, id)) {
        best = warp_logit[w];
        id = warp_id[w];
      }
    }
    best_logit[block_x()] = best;
    best_id[block_x()] = id;
  }
}

constexpr int pick_threads = 256, pick_warps = pick_threads / 32;

FS_KERNEL(pick_threads)
next_token_kernel(const float* best_logit, const int* best_id, int blocks, int* token, int* position) {
  FS_SHARED(float, warp_logit, [pick_warps]);
  FS_SHARED(int, warp_id, [pick_warps]);
  wait_for_previous_kernel();
  float best = -infinity();
  int id = 0x7FFFFFFF;
  for (int i = thread_index(); i < blocks; i += pick_threads) {
    if (better(best_logit[i], best_id[i], best, id)) {
      best = best_logit[i];
      id = best_id[i];
    }
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = shuffle_xor(best, distance);
    const int other_id = shuffle_xor(id, distance);
    if (better(other, other_id, best, id)) {
      best = other;
      id = other_id;
    }
  }
  if (lane_index() == 0) {
    warp_logit[warp_index()] = best;
    warp_id[warp_index()] = id;
  }
  sync_threads();
  if (thread_index() == 0) {
    for (int w = 1; w < pick_warps; ++w) {
      if (better(warp_logit[w], warp_id[w], best, id)) {
        best = warp_logit[w];
        id = warp_id[w];
      }
    }
    *token = id;
    *position += 1;
  }
}

}  // namespace

void head(Stream& stream, const DeviceMatrix& lm_head, const float* x, const float* norm, float eps,
          float* logits, float* best_logit, int* best_id) {
  with_format(lm_head.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"head", static_cast<unsigned>(head_blocks(lm_head.rows)), 1, gemv_threads,
            staged_bytes<Weights>(lm_head.chunks)},
           head_kernel<Weights>, lm_head.data, lm_head.scales, lm_head.rows, lm_head.cols, lm_head.chunks, x,
           norm, eps, logits, best_logit, best_id);
  });
}

void next_token(Stream& stream, const float* best_logit, const int* best_id, int blocks, int* token,
                int* position) {
  launch(stream, {"next_token", 1, 1, pick_threads}, next_token_kernel, best_logit, best_id, blocks, token,
         position);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

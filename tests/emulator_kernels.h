#pragma once
#include "gpu.h"

/// Small kernels for the emulator's test. `bug` 0 is right; every other number leaves out or breaks one
/// thing.
namespace fs::gpu {

constexpr int block = 128, warps = block / 32;

/// y[row] = Σ x[row, 0..n).  One block a row.
template <int bug>
FS_KERNEL(block)
row_sum(const float* x, float* y, int n) {
  FS_SHARED(float, parts, [warps]);
  const float* const row = x + block_x() * n;
  float sum = 0;
  for (int i = thread_index(); bug == 1 ? i <= n : i < n; i += block) sum += row[i];
  if (bug == 2 && thread_index() == 5) return;
  if (bug == 3) {
    if (lane_index() < 16) sum += shuffle_xor(sum, 16);
  } else if (bug == 4) {
    for (int d = 8; d > 0; d /= 2) sum += shuffle_xor(sum, d, 32, 0xFFFFU);
  } else if (bug == 5) {
    if (lane_index() < 16) {
      for (int d = 16; d > 0; d /= 2) sum += shuffle_xor(sum, d, 32, 0xFFFFU);
    }
  } else {
    for (int d = 16; d > 0; d /= 2) sum += shuffle_xor(sum, d);
  }
  if (lane_index() == 0 && !(bug == 6 && warp_index() == 0))
    parts[bug == 7 ? warp_index() + 1 : warp_index()] = sum;
  if (bug == 8) {
    if (warp_index() > 0) {
      sync_threads();
    } else {
      sync_threads();
    }
  } else if (bug == 9) {
    if (warp_index() > 0) sync_threads();
  } else if (bug == 10) {
    sync_named(1, 48);
  } else if (bug == 11) {
    if (warp_index() > 0) sync_named(1, block);
  } else if (bug != 12) {
    sync_threads();
  }
  if (thread_index() == 0) {
    float total = 0;
    for (int w = 0; w < warps; ++w) total += parts[w];
    y[bug == 13 ? block_x() + grid_x() : block_x()] = total;
  }
}

/// Reverses each run of 32 values.
template <int bug>
FS_KERNEL(block)
reverse_runs(const float* x, float* y) {
  FS_SHARED(float, runs, [warps][32]);
  const int at = block_x() * block + thread_index();
  runs[warp_index()][lane_index()] = x[at];
  if (bug != 1) sync_warp();
  y[at] = runs[warp_index()][31 - lane_index()];
}

/// y = x + 1, through shared memory in two stages that are loaded ahead.  n: a multiple of 4·block.
template <int bug>
FS_KERNEL(block)
staged_copy(const float* x, float* y, int n) {
  constexpr int tile = 4 * block;
  FS_SHARED(float, stages, [2][tile]);
  const int tiles = n / tile;
  const auto load = [&](int t) {
    copy_async16(&stages[t % 2][4 * thread_index() + (bug == 1)], x + t * tile + 4 * thread_index());
  };
  load(0);
  commit_copies();
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) load(t + 1);
    if (bug != 2 || t + 1 < tiles) commit_copies();
    if (bug == 3) {
      wait_copies<2>();
    } else if (bug != 4) {
      wait_copies<1>();
    }
    if (bug != 5) sync_threads();
    for (int i = thread_index(); i < tile; i += block) y[t * tile + i] = stages[t % 2][i] + 1;
    if (bug != 6) sync_threads();
  }
}

/// total = Σ over blocks of their index + 1, by the block that ends last.
template <int bug>
FS_KERNEL(block)
last_block(float* parts, unsigned* counter, float* total) {
  FS_SHARED(int, is_last, [1]);
  if (thread_index() == 0) {
    parts[block_x()] = static_cast<float>(block_x() + 1);
    if (bug != 1) fence_device();
    const auto blocks = static_cast<unsigned>(grid_x());
    if (bug == 2) {
      const unsigned before = *counter;
      *counter = before + 1;
      is_last[0] = before == blocks - 1;
    } else {
      is_last[0] = atomic_add(counter, 1U) == blocks - (bug == 3 ? 2 : 1);
    }
  }
  sync_threads();
  if (is_last[0] == 0) return;
  if (thread_index() == 0) {
    fence_device();
    float sum = 0;
    for (int b = 0; b < grid_x(); ++b) sum += load_coherent(parts + b);
    *total = sum;
    if (bug != 4) atomic_exchange(counter, 0U);
  }
}

/// x /= Σ x.  A cooperative grid.
template <int bug>
FS_KERNEL(block)
normalise(float* x, float* parts, int n) {
  FS_SHARED(float, sums, [warps]);
  float sum = 0;
  for (int i = block_x() * block + thread_index(); i < n; i += grid_x() * block) sum += x[i];
  sum = lanes_sum(sum);
  if (lane_index() == 0) sums[warp_index()] = sum;
  sync_threads();
  if (thread_index() == 0) parts[block_x()] = sums[0] + sums[1] + sums[2] + sums[3];
  if (bug != 1) sync_grid();
  float total = 0;
  for (int b = 0; b < grid_x(); ++b) total += parts[b];
  for (int i = block_x() * block + thread_index(); i < n; i += grid_x() * block) x[i] /= total;
}

/// Bins of 64 values, counted in shared memory first.
template <int bug>
FS_KERNEL(block)
histogram(const int* x, int n, unsigned* bins) {
  FS_SHARED(unsigned, own, [64]);
  if (bug != 1) {
    for (int i = thread_index(); i < 64; i += block) own[i] = 0;
    sync_threads();
  }
  for (int i = block_x() * block + thread_index(); i < n; i += grid_x() * block) atomic_add(&own[x[i]], 1U);
  if (bug != 2) sync_threads();
  for (int i = thread_index(); i < 64; i += block) {
    if (bug == 3) {
      bins[i] += own[i];
    } else {
      atomic_add(&bins[i], own[i]);
    }
  }
}

/// y = x, 16 bytes a thread.
template <int bug>
FS_KERNEL(block)
copy_vectors(const float* x, float* y) {
  if (bug == 2) {
    FS_SHARED(float, large, [13000]);
    large[thread_index()] = 0;
  }
  if (bug == 3) {
    FS_DYNAMIC_SHARED(float, none);
    none[0] = 0;
  }
  store4(y + 4 * thread_index(), load4(x + 4 * thread_index() + (bug == 1 ? 1 : 0)));
}

/// d [16, 8] = a [16, 16] · b [8, 16]ᵀ on the tensor core, one warp.  a, b: bf16.
template <int bug>
FS_KERNEL(32)
tensor_product(const Bf16* a, const Bf16* b, float* d) {
  FS_SHARED(U32x4, rows, [48]);  // a: 32 of them, b: 16
  for (int i = lane_index(); i < 48; i += 32) rows[i] = load_streaming(i < 32 ? a + 8 * i : b + 8 * (i - 32));
  sync_warp();
  const int lane = lane_index();
  std::uint32_t fa[4], fb[4];
  load_matrices(fa, &rows[lane % 16 * 2 + lane / 16]);
  load_matrices(fb, &rows[32 + lane % 8 * 2 + lane / 8 % 2]);
  float sum[4] = {0, 0, 0, 0};
  multiply_bf16(sum, fa, bug == 1 ? fb[1] : fb[0], bug == 1 ? fb[0] : fb[1]);
  for (int r = 0; r < 4; ++r) d[(lane / 4 + 8 * (r / 2)) * 8 + lane % 4 * 2 + r % 2] = sum[r];
}

}  // namespace fs::gpu

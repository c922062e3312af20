#pragma once
#include "gpu.h"
#include "grid_barrier.h"

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

/// Each block hands its value + 1 to the block before, `rounds` times. A cooperative grid that counts.
template <int bug>
FS_KERNEL(block)
hand_round(float* x, float* y, unsigned* counts, int rounds) {
  FS_SHARED(unsigned, due, [1]);
  GridBarrier barrier(counts, due);
  for (int round = 0; round < rounds; ++round) {
    if (thread_index() == 0) y[block_x()] = x[block_x()] + 1;
    if (bug != 1) barrier.wait();
    if (thread_index() == 0) x[block_x()] = y[(block_x() + 1) % grid_x()];
    barrier.wait();
  }
  if (bug != 2) barrier.leave();
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

/// y = Σ factor · digit · x over blocks of 32 int8 (nibbles: n − 8), as the GEMV kernels read them: a lane
/// has a chunk of 16 digits (32 nibbles), and one lane of `sharing` neighbours the factor of all. One warp.
template <int bug, bool nibbles>
FS_KERNEL(32)
block_dot(const unsigned char* digits, const F16* factors, const float* x, float* y, int chunks) {
  constexpr int per_chunk = nibbles ? 32 : 16, sharing = nibbles ? 1 : 2;
  const int lane = lane_index();
  const F16 held = lane < chunks / sharing ? load_streaming(factors + lane) : F16{0};
  const auto factor_of_chunk = [&] { return shuffle(to_float(held), bug == 1 ? lane : lane / sharing); };
  float factor = 0, products = 0;
  if (bug != 3) factor = factor_of_chunk();
  if (lane < chunks) {
    if (bug == 3) factor = factor_of_chunk();
    const U32x4 chunk = load_streaming(digits + (bug == 4 ? 18 : 16) * lane);
    const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    for (int i = 0; i < per_chunk; ++i) {
      float digit = 0;
      if constexpr (nibbles) {
        const int place = bug == 5 ? i % 8 ^ 1 : i % 8;
        digit = static_cast<float>(words[i / 8] >> (4 * place) & 15U) - (bug == 6 ? 0.0F : 8.0F);
      } else {
        const std::uint32_t byte = words[i / 4] >> (8 * (i % 4)) & 0xFFU;
        digit = bug == 2 ? static_cast<float>(byte) : static_cast<float>(static_cast<std::int8_t>(byte));
      }
      products = fma(digit, x[per_chunk * lane + i], products);
    }
  }
  const float sum = lanes_sum(factor * products);
  if (lane == 0) *y = sum;
}

/// d [16, 8] = Σ over tiles of factor · a [16, 16] · b [8, 16]ᵀ on the tensor core, the next tile on its way.
/// One warp.  a, b: bf16.
template <int bug>
FS_KERNEL(32)
tile_products(const Bf16* a, const Bf16* b, const float* factors, int tiles, float* d) {
  FS_SHARED(U32x4, stages, [2][49]);  // a: 32 of them, b: 16
  const int lane = lane_index();
  const auto load = [&](int t) {
    for (int i = lane; i < 48; i += 32) {
      copy_async16(&stages[bug == 2 ? 0 : t % 2][i],
                   i < 32 ? a + 256 * t + 8 * i : b + 128 * t + 8 * (i - 32));
    }
    commit_copies();
  };
  float sum[4] = {}, products[4] = {};
  load(0);
  for (int t = 0; t < tiles; ++t) {
    if (bug == 4) {
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    sync_warp();
    if (t + 1 < tiles) load(t + 1);
    const U32x4* const rows = stages[bug == 2 ? 0 : bug == 3 ? (t + 1) % 2 : t % 2];
    std::uint32_t fa[4], fb[4];
    load_matrices(
        fa, reinterpret_cast<const unsigned char*>(&rows[lane % 16 * 2 + lane / 16]) + (bug == 6 ? 2 : 0));
    const U32x4* const column = &rows[32 + lane % 8 * 2 + lane / 8 % 2];
    if (bug == 7) {
      load_matrices_transposed(fb, column);
    } else {
      load_matrices(fb, column);
    }
    if (bug != 1) {
      for (float& product : products) product = 0;
    }
    multiply_bf16(products, fa, fb[0], fb[1]);
    for (int r = 0; r < 4; ++r) sum[r] = fma(factors[bug == 5 ? 0 : t], products[r], sum[r]);
  }
  for (int r = 0; r < 4; ++r) d[(lane / 4 + 8 * (r / 2)) * 8 + lane % 4 * 2 + r % 2] = sum[r];
}

/// Puts x into row `at` of a cache of bf16 rows and sums what the cache then holds there, without waiting for
/// it: the newest row is read from shared memory.
template <int bug>
FS_KERNEL(block)
newest_row(const float* x, int at, Bf16* cache, float* total) {
  FS_SHARED(Bf16, fresh, [block]);
  FS_SHARED(float, parts, [warps]);
  store_as(&fresh[thread_index()], x[thread_index()]);
  cache[(bug == 2 ? 2 : 1) * at * block + thread_index()] = fresh[thread_index()];
  const float sum = lanes_sum(bug == 1 ? x[thread_index()] : to_float(fresh[thread_index()]));
  if (lane_index() == 0) parts[warp_index()] = sum;
  if (bug != 3) sync_threads();
  if (thread_index() == 0) *total = parts[0] + parts[1] + parts[2] + parts[3];
}

}  // namespace fs::gpu

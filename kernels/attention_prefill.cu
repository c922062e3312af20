#include "attention.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int prefill_threads = 128, prefill_warps = prefill_threads / 32;
constexpr int rows_per_warp = 4, query_rows = prefill_warps * rows_per_warp, key_rows = 32;

/// Shared memory, in floats: queries, keys (a padded row each, so that 32 lanes read 32 keys without
/// conflicts), values, and the shares of one tile.
constexpr int prefill_floats(int pitch) {
  return query_rows * pitch + key_rows * (pitch + 4) + key_rows * pitch + query_rows * key_rows;
}

FS_DEVICE float cached(KvFormat format, const void* values, std::size_t at) {
  if (format == KvFormat::f32) return static_cast<const float*>(values)[at];
  if (format == KvFormat::f16) return to_float(static_cast<const F16*>(values)[at]);
  return to_float(static_cast<const Bf16*>(values)[at]);
}

/// Flash attention in fp32: 16 query rows of one head a block, 4 a warp, over tiles of 32 keys with a running
/// softmax (Dao et al. 2022). In a tile a lane scores one key, then sums some of the head's components.
/// Grid: [query tiles, n_q_heads]. per_lane: components a lane, 32·per_lane ≥ head_dim.
template <int per_lane>
FS_KERNEL(prefill_threads)
attention_prefill_kernel(int n_q_heads, int n_kv_heads, int head_dim, int pitch, const float* qkv,
                         KvFormat format, const void* keys, const void* values, int rows, int first_position,
                         float* mixed) {
  FS_DYNAMIC_SHARED(float, shared);
  wait_for_previous_kernel();
  float* const q = shared;                      // [query_rows, pitch]
  float* const k = q + query_rows * pitch;      // [key_rows, pitch + 4]
  float* const v = k + key_rows * (pitch + 4);  // [key_rows, pitch]
  float* const shares = v + key_rows * pitch;   // [query_rows, key_rows]
  const int head = block_y(), kv_head = head / (n_q_heads / n_kv_heads);
  const int first_row = block_x() * query_rows;
  const std::size_t row_width = static_cast<std::size_t>((n_q_heads + 2 * n_kv_heads) * head_dim);
  const std::size_t cache_row = static_cast<std::size_t>(n_kv_heads * pitch);
  const float scale = inverse_sqrt(static_cast<float>(head_dim));

  for (int i = thread_index(); i < query_rows * pitch; i += prefill_threads) {
    const int row = first_row + i / pitch, d = i % pitch;
    const bool inside = row < rows && d < head_dim;
    q[i] =
        inside
            ? qkv[static_cast<std::size_t>(row) * row_width + static_cast<std::size_t>(head * head_dim + d)] *
                  scale
            : 0.0F;
  }
  float top[rows_per_warp], total[rows_per_warp], sum[rows_per_warp][per_lane];
  FS_UNROLL
  for (int r = 0; r < rows_per_warp; ++r) {
    top[r] = -infinity();
    total[r] = 0;
    FS_UNROLL
    for (int j = 0; j < per_lane; ++j) sum[r][j] = 0;
  }

  const int visible = first_position + min(rows, first_row + query_rows);  // to the block's last row
  for (int first_key = 0; first_key < visible; first_key += key_rows) {
    sync_threads();
    for (int i = thread_index(); i < key_rows * pitch; i += prefill_threads) {
      const int key = first_key + i / pitch, d = i % pitch;
      const std::size_t at =
          static_cast<std::size_t>(key) * cache_row + static_cast<std::size_t>(kv_head * pitch + d);
      k[i / pitch * (pitch + 4) + d] = key < visible ? cached(format, keys, at) : 0.0F;
      v[i] = key < visible ? cached(format, values, at) : 0.0F;
    }
    sync_threads();
    FS_UNROLL
    for (int r = 0; r < rows_per_warp; ++r) {
      const int row = warp_index() * rows_per_warp + r, key = first_key + lane_index();
      float score = 0;
      for (int d = 0; d < pitch; d += 4) {
        const F32x4 a = load4(q + row * pitch + d), b = load4(k + lane_index() * (pitch + 4) + d);
        score = fma(a.x, b.x, score);
        score = fma(a.y, b.y, score);
        score = fma(a.z, b.z, score);
        score = fma(a.w, b.w, score);
      }
      const bool seen = key <= first_position + first_row + row && key < visible;
      const float peak = max(top[r], lanes_max(seen ? score : -infinity()));
      const bool any = peak > -infinity();  // rows beyond the last see nothing in late tiles
      const float keep = any ? exp(top[r] - peak) : 1.0F, share = seen && any ? exp(score - peak) : 0.0F;
      shares[row * key_rows + lane_index()] = share;
      total[r] = fma(total[r], keep, lanes_sum(share));
      top[r] = peak;
      FS_UNROLL
      for (int j = 0; j < per_lane; ++j) sum[r][j] *= keep;
    }
    sync_warp();
    for (int key = 0; key < key_rows; ++key) {
      FS_UNROLL
      for (int j = 0; j < per_lane; ++j) {
        const int d = lane_index() + 32 * j;
        const float value = d < head_dim ? v[key * pitch + d] : 0.0F;
        FS_UNROLL
        for (int r = 0; r < rows_per_warp; ++r) {
          sum[r][j] = fma(shares[(warp_index() * rows_per_warp + r) * key_rows + key], value, sum[r][j]);
        }
      }
    }
  }
  FS_UNROLL
  for (int r = 0; r < rows_per_warp; ++r) {
    const int row = first_row + warp_index() * rows_per_warp + r;
    if (row >= rows) continue;
    FS_UNROLL
    for (int j = 0; j < per_lane; ++j) {
      const int d = lane_index() + 32 * j;
      if (d >= head_dim) continue;
      mixed[(static_cast<std::size_t>(row) * static_cast<std::size_t>(n_q_heads) +
             static_cast<std::size_t>(head)) *
                static_cast<std::size_t>(head_dim) +
            static_cast<std::size_t>(d)] = sum[r][j] / total[r];
    }
  }
}

}  // namespace

void attention_prefill(Stream& stream, const AttentionShape& shape, const float* qkv, const LayerCache& cache,
                       int rows, int first_position, float* mixed) {
  const auto run = [&](auto kernel) {
    launch(stream,
           {"attention_prefill", static_cast<unsigned>((rows + query_rows - 1) / query_rows),
            static_cast<unsigned>(shape.n_q_heads), prefill_threads,
            static_cast<std::size_t>(prefill_floats(shape.pitch())) * sizeof(float)},
           kernel, shape.n_q_heads, shape.n_kv_heads, shape.head_dim, shape.pitch(), qkv, cache.format,
           static_cast<const void*>(cache.keys), static_cast<const void*>(cache.values), rows, first_position,
           mixed);
  };
  if (shape.head_dim <= 32) {
    run(attention_prefill_kernel<1>);
  } else if (shape.head_dim <= 64) {
    run(attention_prefill_kernel<2>);
  } else if (shape.head_dim <= 128) {
    run(attention_prefill_kernel<4>);
  } else {
    run(attention_prefill_kernel<8>);
  }
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

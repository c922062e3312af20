#include "attention.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int decode_threads = 128, decode_warps = decode_threads / 32;
constexpr int lanes_per_key = 8, keys_per_warp = 32 / lanes_per_key;
constexpr int keys_per_block = decode_warps * keys_per_warp;

/// Shared memory, in floats: the queries, the new key and value, and what each group of lanes found.
constexpr int shared_floats(int pitch, int heads) {
  return (heads + 2) * pitch + keys_per_block * heads * (pitch + 2);
}

/// Attention of `heads` query heads that share a key head, over one chunk of positions: each key and value is
/// loaded once for all of them. Eight lanes hold a key, so that a dot product is three shuffles and each warp
/// has four keys under way; every group of lanes keeps a softmax of its own until the end.
/// Grid: [n_q_heads / heads, decode_splits]. vectors: of 4 values a lane, 32·vectors ≥ head_dim.
template <int heads, int vectors>
FS_KERNEL(decode_threads)
attention_decode_kernel(int n_q_heads, int n_kv_heads, int head_dim, int pitch, const float* qkv,
                        bool rotated, const float* q_norm, const float* k_norm, const float* angles,
                        float eps, float* keys, float* values, const int* position, float* peak, float* mass,
                        float* mixed) {
  FS_DYNAMIC_SHARED(float, shared);
  wait_for_previous_kernel();
  const int at = *position, positions = at + 1;
  const int chunk = block_y(), length = chunk_length(positions);
  const int first = chunk * length, last = min(positions, first + length);
  if (first >= positions) return;

  const int first_head = block_x() * heads, group = n_q_heads / n_kv_heads, kv_head = first_head / group;
  float* const q = shared;                   // [heads, pitch], scaled
  float* const new_key = q + heads * pitch;  // [pitch]
  float* const new_value = new_key + pitch;  // [pitch]
  float* const found = new_value + pitch;    // [keys_per_block, heads, pitch + 2]
  const float* const turn = angles + static_cast<std::size_t>(at) * static_cast<std::size_t>(head_dim);
  const float* const raw_key = qkv + (n_q_heads + kv_head) * head_dim;
  const float* const raw_value = raw_key + n_kv_heads * head_dim;

  for (int i = thread_index(); i < (heads + 2) * pitch; i += decode_threads) shared[i] = 0;
  sync_threads();
  for (int h = warp_index(); h < heads + 2; h += decode_warps) {
    const float* const raw = qkv + (first_head + h) * head_dim;
    if (h == heads + 1 || rotated) {
      const float* const from = h < heads ? raw : h == heads ? raw_key : raw_value;
      for (int i = lane_index(); i < head_dim; i += 32) shared[h * pitch + i] = from[i];
    } else {
      rotate_head(h < heads ? raw : raw_key, h < heads ? q_norm : k_norm, turn, eps, head_dim,
                  shared + h * pitch);
    }
  }
  sync_threads();
  const float scale = inverse_sqrt(static_cast<float>(head_dim));
  for (int i = thread_index(); i < heads * pitch; i += decode_threads) q[i] *= scale;
  const std::size_t row = static_cast<std::size_t>(n_kv_heads * pitch);  // of the cache
  float* const head_keys = keys + kv_head * pitch;
  float* const head_values = values + kv_head * pitch;
  if (!rotated && last == positions && first_head % group == 0) {  // one block stores the new row
    for (int i = thread_index(); i < pitch; i += decode_threads) {
      head_keys[static_cast<std::size_t>(at) * row + static_cast<std::size_t>(i)] = new_key[i];
      head_values[static_cast<std::size_t>(at) * row + static_cast<std::size_t>(i)] = new_value[i];
    }
  }
  sync_threads();

  const int lane = lane_index() % lanes_per_key,
            slot = warp_index() * keys_per_warp + lane_index() / lanes_per_key;
  float top[heads], total[heads], sum[heads][4 * vectors];
  FS_UNROLL
  for (int h = 0; h < heads; ++h) {
    top[h] = -infinity();
    total[h] = 0;
    FS_UNROLL
    for (int i = 0; i < 4 * vectors; ++i) sum[h][i] = 0;
  }
  for (int base = first + warp_index() * keys_per_warp; base < last; base += keys_per_block) {
    const int key = base + lane_index() / lanes_per_key;
    const bool there = key < last;
    // The newest row may not have reached the cache yet: it is read from shared memory.
    const float* const k = key == at ? new_key : head_keys + static_cast<std::size_t>(key) * row;
    const float* const v = key == at ? new_value : head_values + static_cast<std::size_t>(key) * row;
    F32x4 kv[vectors], vv[vectors];
    FS_UNROLL
    for (int j = 0; j < vectors; ++j) {
      const int i = 4 * (lane + lanes_per_key * j);
      const bool inside = there && i < pitch;
      kv[j] = inside ? load_once4(k + i) : F32x4{0, 0, 0, 0};
      vv[j] = inside ? load_once4(v + i) : F32x4{0, 0, 0, 0};
    }
    FS_UNROLL
    for (int h = 0; h < heads; ++h) {
      float dot = 0;
      FS_UNROLL
      for (int j = 0; j < vectors; ++j) {
        const int i = 4 * (lane + lanes_per_key * j);
        if (i >= pitch) continue;
        const F32x4 query = load4(q + h * pitch + i);
        dot = fma(query.x, kv[j].x, dot);
        dot = fma(query.y, kv[j].y, dot);
        dot = fma(query.z, kv[j].z, dot);
        dot = fma(query.w, kv[j].w, dot);
      }
      dot = lanes_sum<lanes_per_key>(dot);
      if (!there) continue;
      const float peak_now = max(top[h], dot), keep = exp(top[h] - peak_now), share = exp(dot - peak_now);
      top[h] = peak_now;
      total[h] = fma(total[h], keep, share);
      FS_UNROLL
      for (int j = 0; j < vectors; ++j) {
        sum[h][4 * j] = fma(sum[h][4 * j], keep, share * vv[j].x);
        sum[h][4 * j + 1] = fma(sum[h][4 * j + 1], keep, share * vv[j].y);
        sum[h][4 * j + 2] = fma(sum[h][4 * j + 2], keep, share * vv[j].z);
        sum[h][4 * j + 3] = fma(sum[h][4 * j + 3], keep, share * vv[j].w);
      }
    }
  }

  FS_UNROLL
  for (int h = 0; h < heads; ++h) {
    float* const own = found + (slot * heads + h) * (pitch + 2);
    FS_UNROLL
    for (int j = 0; j < vectors; ++j) {
      const int i = 4 * (lane + lanes_per_key * j);
      FS_UNROLL
      for (int c = 0; c < 4; ++c) {
        if (i + c < pitch) own[i + c] = sum[h][4 * j + c];
      }
    }
    if (lane == 0) {
      own[pitch] = top[h];
      own[pitch + 1] = total[h];
    }
  }
  sync_threads();
  for (int i = thread_index(); i < heads * head_dim; i += decode_threads) {
    const int h = i / head_dim, d = i % head_dim;
    float best = -infinity();
    for (int s = 0; s < keys_per_block; ++s) best = max(best, found[(s * heads + h) * (pitch + 2) + pitch]);
    float weight = 0, value = 0;
    for (int s = 0; s < keys_per_block; ++s) {
      const float* const one = found + (s * heads + h) * (pitch + 2);
      const float share = exp(one[pitch] - best);  // 0 for a group that saw no key
      weight = fma(one[pitch + 1], share, weight);
      value = fma(one[d], share, value);
    }
    const int to = chunk * n_q_heads + first_head + h;
    mixed[to * head_dim + d] = value;
    if (d == 0) {
      peak[to] = best;
      mass[to] = weight;
    }
  }
}

constexpr int merge_threads = 128;

FS_KERNEL(merge_threads)
merge_partials_kernel(int n_q_heads, int head_dim, const float* peak, const float* mass, const float* mixed,
                      const int* position, float* out) {
  wait_for_previous_kernel();
  const int chunks = chunk_count(*position + 1);
  for (int i = thread_index(); i < head_dim; i += merge_threads) {
    out[block_x() * head_dim + i] = merged(peak, mass, mixed, chunks, n_q_heads, head_dim, block_x(), i);
  }
}

}  // namespace

void attention_decode(Stream& stream, const AttentionShape& shape, const float* qkv, bool rotated,
                      const Rotation& rotation, const LayerCache& cache, const int* position,
                      const Partials& partials) {
  const auto run = [&](auto kernel, int heads) {
    const auto floats = static_cast<std::size_t>(shared_floats(shape.pitch(), heads));
    launch(stream,
           {"attention_decode", static_cast<unsigned>(shape.n_q_heads / heads), decode_splits, decode_threads,
            floats * sizeof(float)},
           kernel, shape.n_q_heads, shape.n_kv_heads, shape.head_dim, shape.pitch(), qkv, rotated,
           rotation.q_norm, rotation.k_norm, rotation.angles, rotation.eps, cache.keys, cache.values,
           position, partials.peak, partials.mass, partials.mixed);
  };
  const bool pairs = shape.n_q_heads / shape.n_kv_heads % 2 == 0;
  if (shape.pitch() <= 64) {
    pairs ? run(attention_decode_kernel<2, 2>, 2) : run(attention_decode_kernel<1, 2>, 1);
  } else if (shape.pitch() <= 128) {
    pairs ? run(attention_decode_kernel<2, 4>, 2) : run(attention_decode_kernel<1, 4>, 1);
  } else {
    pairs ? run(attention_decode_kernel<2, 8>, 2) : run(attention_decode_kernel<1, 8>, 1);
  }
}

void merge_partials(Stream& stream, const AttentionShape& shape, const Partials& partials,
                    const int* position, float* mixed) {
  launch(stream, {"merge_partials", static_cast<unsigned>(shape.n_q_heads), 1, merge_threads},
         merge_partials_kernel, shape.n_q_heads, shape.head_dim, static_cast<const float*>(partials.peak),
         static_cast<const float*>(partials.mass), static_cast<const float*>(partials.mixed), position,
         mixed);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

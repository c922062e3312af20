#pragma once
#include "attention.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {

inline constexpr int decode_threads = 128, decode_warps = decode_threads / 32;
inline constexpr int lanes_per_key = 8, keys_per_warp = 32 / lanes_per_key;
inline constexpr int keys_per_team = decode_warps * keys_per_warp;

/// decode_threads threads attend to one chunk of positions: a block of that many, or a half of a larger one.
struct BlockTeam {
  FS_DEVICE static int thread() { return thread_index(); }
  FS_DEVICE static int warp() { return warp_index(); }
  FS_DEVICE static int lane() { return lane_index(); }
  FS_DEVICE static void sync() { sync_threads(); }
  static constexpr int rounds = 4;
};
struct HalfBlockTeam {
  FS_DEVICE static int half() { return anew(thread_index()) / decode_threads; }
  FS_DEVICE static int thread() { return anew(thread_index()) % decode_threads; }
  FS_DEVICE static int warp() { return thread() / 32; }
  FS_DEVICE static int lane() { return thread() % 32; }
  FS_DEVICE static void sync() { sync_named(1 + half(), decode_threads); }
  static constexpr int rounds = 1;
};

/// Shared memory of a team, in floats: the queries, the new key and value, the same as the cache holds them,
/// and what each group of lanes found.
constexpr int shared_floats(int pitch, int heads) {
  return (heads + 4) * pitch + keys_per_team * heads * (pitch + 2);
}

/// What attention_decode() is given.
template <class Element>
struct DecodeAttention {
  int n_q_heads, n_kv_heads, head_dim, pitch;
  const float* qkv;
  bool rotated;
  Rotation rotation;
  Element *keys, *values;
  Partials partials;
};

/// Attention of the query heads first_head, … (`present` of at most `heads`, which share a key head) at
/// position `positions` − 1, over one chunk of positions: each key and value is loaded once for all of them.
/// Eight lanes hold a key, so that a dot product is three shuffles and each warp has four keys under way;
/// every group of lanes keeps a softmax of its own until the end.  vectors: of 16 bytes of a cached head that
/// a lane holds, all lanes together the whole head; shared: shared_floats
template <class Element, int heads, int vectors, class Team>
FS_DEVICE void attend_to_chunk(const DecodeAttention<Element>& in, int positions, int first_head, int present,
                               int chunk, float* shared) {
  const int n_q_heads = in.n_q_heads, n_kv_heads = in.n_kv_heads, head_dim = in.head_dim, pitch = in.pitch;
  const int at = positions - 1, length = chunk_length(positions);
  const int first = chunk * length, last = min(positions, first + length);
  const int group = n_q_heads / n_kv_heads, kv_head = first_head / group;
  float* const q = shared;                                                 // [heads, pitch], scaled
  float* const fresh = q + heads * pitch;                                  // [2, pitch] the new key and value
  Element* const new_key = reinterpret_cast<Element*>(fresh + 2 * pitch);  // [pitch]
  Element* const new_value = new_key + pitch;                              // [pitch]
  float* const found = fresh + 4 * pitch;  // [keys_per_team, heads, pitch + 2]
  const float* const turn =
      in.rotation.angles + static_cast<std::size_t>(at) * static_cast<std::size_t>(head_dim);
  const float* const raw_key = in.qkv + (n_q_heads + kv_head) * head_dim;
  const float* const raw_value = raw_key + n_kv_heads * head_dim;

  FS_UNROLL_BY(Team::rounds)
  for (int i = Team::thread(); i < (heads + 2) * pitch; i += decode_threads) shared[i] = 0;
  Team::sync();
  for (int h = Team::warp(); h < heads + 2; h += decode_warps) {
    if (h >= present && h < heads) continue;
    const float* const raw = in.qkv + (first_head + h) * head_dim;
    if (h == heads + 1 || in.rotated) {
      const float* const from = h < heads ? raw : h == heads ? raw_key : raw_value;
      for (int i = Team::lane(); i < head_dim; i += 32) shared[h * pitch + i] = from[i];
    } else {
      rotate_head(h < heads ? raw : raw_key, h < heads ? in.rotation.q_norm : in.rotation.k_norm, turn,
                  in.rotation.eps, head_dim, shared + h * pitch);
    }
  }
  Team::sync();
  const float scale = inverse_sqrt(static_cast<float>(head_dim));
  FS_UNROLL_BY(Team::rounds)
  for (int i = Team::thread(); i < heads * pitch; i += decode_threads) q[i] *= scale;
  FS_UNROLL_BY(Team::rounds)
  for (int i = Team::thread(); i < 2 * pitch; i += decode_threads) store_as(new_key + i, fresh[i]);
  const std::size_t row = static_cast<std::size_t>(n_kv_heads * pitch);  // of the cache
  Element* const head_keys = in.keys + kv_head * pitch;
  Element* const head_values = in.values + kv_head * pitch;
  Team::sync();
  if (!in.rotated && last == positions && first_head % group == 0) {  // one block stores the new row
    FS_UNROLL_BY(Team::rounds)
    for (int i = Team::thread(); i < pitch; i += decode_threads) {
      head_keys[static_cast<std::size_t>(at) * row + static_cast<std::size_t>(i)] = new_key[i];
      head_values[static_cast<std::size_t>(at) * row + static_cast<std::size_t>(i)] = new_value[i];
    }
  }

  constexpr int per_vector = 16 / sizeof(Element);
  const int lane = Team::lane() % lanes_per_key,
            slot = Team::warp() * keys_per_warp + Team::lane() / lanes_per_key;
  float top[heads], total[heads], sum[heads][per_vector * vectors];
  FS_UNROLL
  for (int h = 0; h < heads; ++h) {
    top[h] = -infinity();
    total[h] = 0;
    FS_UNROLL
    for (int i = 0; i < per_vector * vectors; ++i) sum[h][i] = 0;
  }
  for (int base = first + Team::warp() * keys_per_warp; base < last; base += keys_per_team) {
    const int key = base + Team::lane() / lanes_per_key;
    const bool there = key < last;
    // The newest row may not have reached the cache yet: it is read from shared memory.
    const Element* const k = key == at ? new_key : head_keys + static_cast<std::size_t>(key) * row;
    const Element* const v = key == at ? new_value : head_values + static_cast<std::size_t>(key) * row;
    U32x4 kv[vectors], vv[vectors];
    FS_UNROLL
    for (int j = 0; j < vectors; ++j) {
      const int i = per_vector * (lane + lanes_per_key * j);
      const bool inside = there && i < pitch;
      kv[j] = inside ? load_once(k + i) : U32x4{0, 0, 0, 0};
      vv[j] = inside ? load_once(v + i) : U32x4{0, 0, 0, 0};
    }
    FS_UNROLL
    for (int h = 0; h < heads; ++h) {
      float dot = 0;
      FS_UNROLL
      for (int j = 0; j < vectors; ++j) {
        const int i = per_vector * (lane + lanes_per_key * j);
        if (i >= pitch) continue;
        float elements[per_vector];
        decode_cached<Element>(kv[j], elements);
        FS_UNROLL
        for (int part = 0; part < per_vector; part += 4) {
          const F32x4 query = load4(q + h * pitch + i + part);
          dot = fma(query.x, elements[part], dot);
          dot = fma(query.y, elements[part + 1], dot);
          dot = fma(query.z, elements[part + 2], dot);
          dot = fma(query.w, elements[part + 3], dot);
        }
      }
      dot = lanes_sum<lanes_per_key>(dot);
      if (!there) continue;
      const float peak_now = max(top[h], dot), keep = exp(top[h] - peak_now), share = exp(dot - peak_now);
      top[h] = peak_now;
      total[h] = fma(total[h], keep, share);
      FS_UNROLL
      for (int j = 0; j < vectors; ++j) {
        float elements[per_vector];
        decode_cached<Element>(vv[j], elements);
        FS_UNROLL
        for (int c = 0; c < per_vector; ++c) {
          float& own = sum[h][per_vector * j + c];
          own = fma(own, keep, share * elements[c]);
        }
      }
    }
  }

  FS_UNROLL
  for (int h = 0; h < heads; ++h) {
    float* const own = found + (slot * heads + h) * (pitch + 2);
    FS_UNROLL
    for (int j = 0; j < vectors; ++j) {
      const int i = per_vector * (lane + lanes_per_key * j);
      FS_UNROLL
      for (int c = 0; c < per_vector; ++c) {
        if (i + c < pitch) own[i + c] = sum[h][per_vector * j + c];
      }
    }
    if (lane == 0) {
      own[pitch] = top[h];
      own[pitch + 1] = total[h];
    }
  }
  Team::sync();
  for (int i = Team::thread(); i < present * head_dim; i += decode_threads) {
    const int h = i / head_dim, d = i % head_dim;
    float best = -infinity();
    for (int s = 0; s < keys_per_team; ++s) best = max(best, found[(s * heads + h) * (pitch + 2) + pitch]);
    float weight = 0, value = 0;
    for (int s = 0; s < keys_per_team; ++s) {
      const float* const one = found + (s * heads + h) * (pitch + 2);
      const float share = exp(one[pitch] - best);  // 0 for a group that saw no key
      weight = fma(one[pitch + 1], share, weight);
      value = fma(one[d], share, value);
    }
    const int to = chunk * n_q_heads + first_head + h;
    in.partials.mixed[to * head_dim + d] = value;
    if (d == 0) {
      in.partials.peak[to] = best;
      in.partials.mass[to] = weight;
    }
  }
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

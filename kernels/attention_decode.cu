#include <type_traits>

#include "attention.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int decode_threads = 128, decode_warps = decode_threads / 32;
constexpr int lanes_per_key = 8, keys_per_warp = 32 / lanes_per_key;
constexpr int keys_per_block = decode_warps * keys_per_warp;

/// Shared memory, in floats: the queries, the new key and value, the same as the cache holds them, and what
/// each group of lanes found.
constexpr int shared_floats(int pitch, int heads) {
  return (heads + 4) * pitch + keys_per_block * heads * (pitch + 2);
}

/// Attention of `heads` query heads that share a key head, over one chunk of positions: each key and value is
/// loaded once for all of them. Eight lanes hold a key, so that a dot product is three shuffles and each warp
/// has four keys under way; every group of lanes keeps a softmax of its own until the end.
/// Grid: [n_q_heads / heads, decode_splits]. vectors: of 16 bytes of a cached head that a lane holds, all
/// lanes together the whole head.
template <class Element, int heads, int vectors>
FS_KERNEL(decode_threads, 3)
attention_decode_kernel(int n_q_heads, int n_kv_heads, int head_dim, int pitch, const float* qkv,
                        bool rotated, const float* q_norm, const float* k_norm, const float* angles,
                        float eps, Element* keys, Element* values, const int* position, float* peak,
                        float* mass, float* mixed) {
  FS_DYNAMIC_SHARED(float, shared);
  wait_for_previous_kernel();
  const int at = *position, positions = at + 1;
  const int chunk = block_y(), length = chunk_length(positions);
  const int first = chunk * length, last = min(positions, first + length);
  if (first >= positions) return;

  const int first_head = block_x() * heads, group = n_q_heads / n_kv_heads, kv_head = first_head / group;
  float* const q = shared;                                                 // [heads, pitch], scaled
  float* const fresh = q + heads * pitch;                                  // [2, pitch] the new key and value
  Element* const new_key = reinterpret_cast<Element*>(fresh + 2 * pitch);  // [pitch]
  Element* const new_value = new_key + pitch;                              // [pitch]
  float* const found = fresh + 4 * pitch;  // [keys_per_block, heads, pitch + 2]
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
  for (int i = thread_index(); i < 2 * pitch; i += decode_threads) store_as(new_key + i, fresh[i]);
  const std::size_t row = static_cast<std::size_t>(n_kv_heads * pitch);  // of the cache
  Element* const head_keys = keys + kv_head * pitch;
  Element* const head_values = values + kv_head * pitch;
  sync_threads();
  if (!rotated && last == positions && first_head % group == 0) {  // one block stores the new row
    for (int i = thread_index(); i < pitch; i += decode_threads) {
      head_keys[static_cast<std::size_t>(at) * row + static_cast<std::size_t>(i)] = new_key[i];
      head_values[static_cast<std::size_t>(at) * row + static_cast<std::size_t>(i)] = new_value[i];
    }
  }

  constexpr int per_vector = 16 / sizeof(Element);
  const int lane = lane_index() % lanes_per_key,
            slot = warp_index() * keys_per_warp + lane_index() / lanes_per_key;
  float top[heads], total[heads], sum[heads][per_vector * vectors];
  FS_UNROLL
  for (int h = 0; h < heads; ++h) {
    top[h] = -infinity();
    total[h] = 0;
    FS_UNROLL
    for (int i = 0; i < per_vector * vectors; ++i) sum[h][i] = 0;
  }
  for (int base = first + warp_index() * keys_per_warp; base < last; base += keys_per_block) {
    const int key = base + lane_index() / lanes_per_key;
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
  const auto run = [&](auto kernel, int heads, auto* element) {
    using Element = std::remove_pointer_t<decltype(element)>;
    const auto floats = static_cast<std::size_t>(shared_floats(shape.pitch(), heads));
    launch(stream,
           {"attention_decode", static_cast<unsigned>(shape.n_q_heads / heads), decode_splits, decode_threads,
            floats * sizeof(float)},
           kernel, shape.n_q_heads, shape.n_kv_heads, shape.head_dim, shape.pitch(), qkv, rotated,
           rotation.q_norm, rotation.k_norm, rotation.angles, rotation.eps, static_cast<Element*>(cache.keys),
           static_cast<Element*>(cache.values), position, partials.peak, partials.mass, partials.mixed);
  };
  const bool pairs = shape.n_q_heads / shape.n_kv_heads % 2 == 0;
  with_kv_format(cache.format, [&](auto* element) {
    using Element = std::remove_pointer_t<decltype(element)>;
    constexpr int of_64 = 64 * sizeof(Element) / (16 * lanes_per_key);  // vectors of a head of 64
    const auto with_vectors = [&](auto vectors) {
      pairs ? run(attention_decode_kernel<Element, 2, decltype(vectors)::value>, 2, element)
            : run(attention_decode_kernel<Element, 1, decltype(vectors)::value>, 1, element);
    };
    if (shape.pitch() <= 64) {
      with_vectors(std::integral_constant<int, of_64>{});
    } else if (shape.pitch() <= 128) {
      with_vectors(std::integral_constant<int, 2 * of_64>{});
    } else {
      with_vectors(std::integral_constant<int, 4 * of_64>{});
    }
  });
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

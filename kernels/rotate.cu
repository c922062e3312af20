#include <type_traits>

#include "attention.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int rotate_threads = 128, rotate_warps = rotate_threads / 32;

/// One warp's head into the cache, and into `own` as the cache holds it.
template <class Element>
FS_DEVICE void store_head(float* own, int head_dim, int pitch, Element* to) {
  for (int i = lane_index(); i < pitch; i += 32) {
    const float value = i < head_dim ? own[i] : 0.0F;
    store_as(to + i, value);
    if (i < head_dim) own[i] = rounded<Element>(value);
  }
}

/// A warp a head of q, k or v; without `turn` the heads are stored as they are.  Grid: [heads / warps, rows].
template <class Element, bool turn>
FS_KERNEL(rotate_threads)
rotate_kernel(int n_q_heads, int n_kv_heads, int head_dim, int pitch, const float* q_norm,
              const float* k_norm, const float* angles, float eps, float* qkv, int first_position,
              Element* keys, Element* values) {
  wait_for_previous_kernel();
  const int head = block_x() * rotate_warps + warp_index(), n_heads = n_q_heads + 2 * n_kv_heads;
  if (head >= n_heads) return;
  float* const own = qkv + (static_cast<std::size_t>(block_y()) * static_cast<std::size_t>(n_heads) +
                            static_cast<std::size_t>(head)) *
                               static_cast<std::size_t>(head_dim);
  const std::size_t at = static_cast<std::size_t>(first_position + block_y());
  if (turn && head < n_q_heads + n_kv_heads) {
    rotate_head(own, head < n_q_heads ? q_norm : k_norm, angles + at * static_cast<std::size_t>(head_dim),
                eps, head_dim, own);
  }
  if (head < n_q_heads) return;
  sync_warp();
  const bool is_key = head < n_q_heads + n_kv_heads;
  const int kv_head = head - n_q_heads - (is_key ? 0 : n_kv_heads);
  Element* const to = (is_key ? keys : values) + at * static_cast<std::size_t>(n_kv_heads * pitch) +
                      static_cast<std::size_t>(kv_head * pitch);
  store_head(own, head_dim, pitch, to);
}

template <bool turn>
void run(Stream& stream, const char* name, const AttentionShape& shape, const Rotation& rotation, float* qkv,
         int rows, int first_position, const LayerCache& cache) {
  const int n_heads = shape.n_q_heads + 2 * shape.n_kv_heads;
  with_kv_format(cache.format, [&](auto* element) {
    using Element = std::remove_pointer_t<decltype(element)>;
    launch(stream,
           {name, static_cast<unsigned>((n_heads + rotate_warps - 1) / rotate_warps),
            static_cast<unsigned>(rows), rotate_threads},
           rotate_kernel<Element, turn>, shape.n_q_heads, shape.n_kv_heads, shape.head_dim, shape.pitch(),
           rotation.q_norm, rotation.k_norm, rotation.angles, rotation.eps, qkv, first_position,
           static_cast<Element*>(cache.keys), static_cast<Element*>(cache.values));
  });
}

}  // namespace

void rotate(Stream& stream, const AttentionShape& shape, const Rotation& rotation, float* qkv, int rows,
            int first_position, const LayerCache& cache) {
  run<true>(stream, "rotate", shape, rotation, qkv, rows, first_position, cache);
}

void store_kv(Stream& stream, const AttentionShape& shape, float* qkv, int rows, int first_position,
              const LayerCache& cache) {
  run<false>(stream, "store_kv", shape, {}, qkv, rows, first_position, cache);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

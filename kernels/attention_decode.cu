#include <type_traits>

#include "attention_decode.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// A block a team.  Grid: [n_q_heads / heads, decode_splits]
template <class Element, int heads, int vectors>
FS_KERNEL(decode_threads, 3)
attention_decode_kernel(int n_q_heads, int n_kv_heads, int head_dim, int pitch, const float* qkv,
                        bool rotated, const float* q_norm, const float* k_norm, const float* angles,
                        float eps, Element* keys, Element* values, const int* position, float* peak,
                        float* mass, float* mixed) {
  FS_DYNAMIC_SHARED(float, shared);
  wait_for_previous_kernel();
  const int positions = *position + 1;
  if (block_y() >= chunk_count(positions)) return;
  attend_to_chunk<Element, heads, vectors, BlockTeam>({n_q_heads,
                                                       n_kv_heads,
                                                       head_dim,
                                                       pitch,
                                                       qkv,
                                                       rotated,
                                                       {q_norm, k_norm, angles, eps},
                                                       keys,
                                                       values,
                                                       {peak, mass, mixed}},
                                                      positions, block_x() * heads, heads, block_y(), shared);
}

constexpr int merge_threads = 128;

FS_KERNEL(merge_threads)
merge_partials_kernel(int n_q_heads, int head_dim, float* peak, float* mass, float* mixed,
                      const int* position, float* out) {
  wait_for_previous_kernel();
  const int chunks = chunk_count(*position + 1);
  for (int i = thread_index(); i < head_dim; i += merge_threads) {
    out[block_x() * head_dim + i] = merged({peak, mass, mixed}, chunks, n_q_heads, head_dim, block_x(), i);
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
           {"attention_decode",
            static_cast<unsigned>(shape.n_q_heads / heads),
            decode_splits,
            decode_threads,
            floats * sizeof(float),
            {0, key_value_bytes(shape, cache.format)}},
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
         merge_partials_kernel, shape.n_q_heads, shape.head_dim, partials.peak, partials.mass, partials.mixed,
         position, mixed);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

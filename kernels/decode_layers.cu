#include <algorithm>
#include <type_traits>

#include "attention_decode.h"
#include "attn_out.h"
#include "grid_barrier.h"
#include "mlp_down.h"
#include "norm_qkv.h"
#include "swiglu.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

/// A stage of the persistent kernel begins when all blocks have ended the one before; the weights that it
/// begins with are on their way by then.
struct AsStage {
  static constexpr bool one_pass = false;
  GridBarrier& barrier;
  FS_DEVICE void wait() const { barrier.wait(); }
};

// Numbers go through anew() so that what follows from them for one stage is not kept in registers through all
// of the others.

template <class T>
FS_DEVICE T* behind(T* address, std::size_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const unsigned char, unsigned char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(address) + bytes);
}
FS_DEVICE std::size_t apart(int layer, std::size_t bytes) {
  return static_cast<std::size_t>(anew(layer)) * bytes;
}
template <class Weights>
FS_DEVICE MatrixPlanes planes(const DeviceMatrix& first, std::size_t bytes) {
  const F16* const scales = Weights::chunks_per_scale > 0 ? behind(first.scales, bytes) : nullptr;
  return {behind(first.data, bytes), scales, anew(first.rows), anew(first.chunks)};
}

inline constexpr int heads_at_once = 2;

/// Each half of each block is a team; teams of neighbouring blocks take neighbouring heads.
template <class Element>
FS_DEVICE void attend(const DecodeLayers& in, int layer, int pitch, float* shared, std::size_t of_team) {
  constexpr int vectors = persistent_most_dim * sizeof(Element) / (16 * lanes_per_key);
  const std::size_t at = apart(layer, in.weights_apart), cache_at = apart(layer, in.cache_apart);
  const DecodeAttention<Element> attention = {
      anew(in.shape.n_q_heads),
      anew(in.shape.n_kv_heads),
      anew(in.shape.head_dim),
      anew(pitch),
      in.qkv,
      false,
      {behind(in.weights.q_norm, at), behind(in.weights.k_norm, at), in.angles, in.eps},
      behind(static_cast<Element*>(in.cache.keys), cache_at),
      behind(static_cast<Element*>(in.cache.values), cache_at),
      in.partials};
  const int group = attention.n_q_heads / attention.n_kv_heads;
  const int pairs = (group + heads_at_once - 1) / heads_at_once, all_pairs = attention.n_kv_heads * pairs;
  const int half = HalfBlockTeam::half(), positions = *in.position + 1;
  float* const own = behind(shared, static_cast<std::size_t>(half) * of_team);
  for (int i = half * grid_x() + block_x(); i < all_pairs * chunk_count(positions); i += 2 * grid_x()) {
    const int first = i % pairs * heads_at_once, kv_head = i / pairs % attention.n_kv_heads;
    attend_to_chunk<Element, heads_at_once, vectors, HalfBlockTeam>(
        attention, positions, kv_head * group + first, min(heads_at_once, group - first), i / all_pairs, own);
  }
}
FS_DEVICE void attend(const DecodeLayers& in, int layer, int pitch, float* shared, std::size_t of_team) {
  switch (in.cache.format) {
    case KvFormat::f32:
      return attend<float>(in, layer, pitch, shared, of_team);
    case KvFormat::f16:
      return attend<F16>(in, layer, pitch, shared, of_team);
    case KvFormat::bf16:
      return attend<Bf16>(in, layer, pitch, shared, of_team);
  }
}

/// of_team: bytes of shared memory for half a block that attends
template <class Weights>
FS_KERNEL(gemv_threads, 2)
decode_layers_kernel(FS_KERNEL_CONSTANT const DecodeLayers in, int pitch, std::size_t of_team) {
  FS_DYNAMIC_SHARED(float, shared);
  FS_SHARED(unsigned, due, [1]);
  GridBarrier barrier(in.counts, due);
  const AsStage run{barrier};
  const DeviceLayer& w = in.weights;
  for (int l = 0; l < in.n_layers; ++l) {
    const auto at = [&] { return apart(l, in.weights_apart); };
    norm_qkv_rows<Weights>(run, planes<Weights>(w.qkv, at()), anew(w.qkv.cols), in.x,
                           behind(w.input_norm, at()), in.eps, in.qkv, shared);
    barrier.wait();
    attend(in, l, pitch, shared, of_team);
    attn_out_rows<Weights>(run, planes<Weights>(w.o_proj, at()), anew(w.o_proj.cols),
                           anew(in.shape.n_q_heads), anew(in.shape.head_dim), in.partials, in.position,
                           nullptr, in.x, shared);
    swiglu_rows<Weights>(run, planes<Weights>(w.gate_proj, at()), planes<Weights>(w.up_proj, at()),
                         anew(w.gate_proj.cols), in.x, behind(w.post_attention_norm, at()), in.eps, in.act,
                         shared);
    mlp_down_rows<Weights>(run, planes<Weights>(w.down_proj, at()), anew(w.down_proj.cols), in.act, in.x,
                           shared);
  }
  barrier.leave();
}

/// Calls `use` with the kernel for these layers, how it is launched with as many blocks as the stage with
/// most rows has work for, and of_team.
template <class Use>
void with_kernel(const DecodeLayers& in, Use use) {
  const DeviceLayer& w = in.weights;
  const std::size_t of_team =
      static_cast<std::size_t>(shared_floats(in.shape.pitch(), heads_at_once)) * sizeof(float);
  with_format(w.qkv.format, [&](auto weights) {
    using Weights = decltype(weights);
    const int chunks = std::max({w.qkv.chunks, w.o_proj.chunks, w.gate_proj.chunks, w.down_proj.chunks});
    const std::size_t bytes = std::max(2 * of_team, staged_bytes<Weights>(chunks));
    const unsigned blocks = std::max(
        {gemv_blocks(w.qkv.rows, rows_at_once<Weights>), gemv_blocks(w.o_proj.rows),
         gemv_blocks(w.gate_proj.rows, swiglu_rows_each<Weights, AsStage>), gemv_blocks(w.down_proj.rows)});
    const std::size_t matrices = stored_bytes(w.qkv) + stored_bytes(w.o_proj) + stored_bytes(w.gate_proj) +
                                 stored_bytes(w.up_proj) + stored_bytes(w.down_proj);
    const auto n_layers = static_cast<std::size_t>(in.n_layers);
    const Reads reads = {n_layers * matrices, n_layers * key_value_bytes(in.shape, in.cache.format)};
    use(decode_layers_kernel<Weights>,
        LaunchShape{"decode_layers", blocks, 1, gemv_threads, bytes, reads, true}, of_team);
  });
}

}  // namespace

void decode_layers(Stream& stream, const DecodeLayers& layers, unsigned blocks) {
  with_kernel(layers, [&](auto kernel, LaunchShape shape, std::size_t of_team) {
    shape.blocks_x = blocks;
    launch(stream, shape, kernel, layers, layers.shape.pitch(), of_team);
  });
}

unsigned decode_layers_blocks(const DecodeLayers& layers) {
  unsigned blocks = 0;
  with_kernel(layers, [&](auto kernel, const LaunchShape& shape, std::size_t) {
    blocks = std::min(resident_blocks(shape, kernel), shape.blocks_x);
  });
  return blocks;
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#pragma once
#include <cstddef>
#include <cstdint>

#include "element_types.h"
#include "runtime.h"

/// The launchers of every kernel, one operation each. All pointers are device memory; activations are fp32,
/// row-major and dense. What a kernel does is said in its own file.
namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// How the elements of a weight matrix are stored on the device.
enum class WeightFormat { bf16, f16, f32, q8_0, int4 };
inline constexpr std::size_t weights_per_chunk(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
    case WeightFormat::f16:
      break;
    case WeightFormat::f32:
      return 4;
    case WeightFormat::q8_0:
      return 16;
    case WeightFormat::int4:
      return 32;
  }
  return 8;
}
/// Neighbouring chunks that share an fp16 factor; 0: there are no factors.
inline constexpr std::size_t chunks_per_scale(WeightFormat format) {
  return format == WeightFormat::q8_0 ? 2 : format == WeightFormat::int4 ? 4 : 0;
}

/// A weight matrix on the device (y = W·x): each row is padded with zeros to whole chunks of 16 bytes. The
/// factors of the block formats lie in a plane of their own, so that chunks are aligned.
struct DeviceMatrix {
  WeightFormat format = WeightFormat::bf16;
  int rows = 0, cols = 0;
  int chunks = 0;                       ///< of 16 bytes a row
  const unsigned char* data = nullptr;  ///< [rows, chunks, 16]
  const F16* scales = nullptr;          ///< [rows, chunks / chunks_per_scale, rounded up]
};
/// A row of it.
inline constexpr std::size_t row_bytes(const DeviceMatrix& m) {
  const auto chunks = static_cast<std::size_t>(m.chunks), per_scale = chunks_per_scale(m.format);
  return 16 * chunks + (per_scale == 0 ? 0 : (chunks + per_scale - 1) / per_scale * sizeof(F16));
}
inline constexpr std::size_t stored_bytes(const DeviceMatrix& m) {
  return static_cast<std::size_t>(m.rows) * row_bytes(m);
}

/// The widths of attention.
struct AttentionShape {
  int n_q_heads = 0, n_kv_heads = 0, head_dim = 0;
  /// Values from one cached head to the next: head_dim rounded up to whole vectors of any format, the rest
  /// zero.
  constexpr int pitch() const { return (head_dim + 7) / 8 * 8; }
  int q_width() const { return n_q_heads * head_dim; }
  int kv_width() const { return n_kv_heads * head_dim; }
  int qkv_width() const { return q_width() + 2 * kv_width(); }
};

/// The weights of a layer.
struct DeviceLayer {
  const float* input_norm = nullptr;  // [hidden]
  DeviceMatrix qkv;                   // [(n_q_heads + 2·n_kv_heads)·head_dim, hidden]: q, k, v
  const float *q_norm = nullptr, *k_norm = nullptr;  // [head_dim]
  DeviceMatrix o_proj;                               // [hidden, n_q_heads·head_dim]
  const float* post_attention_norm = nullptr;        // [hidden]
  DeviceMatrix gate_proj, up_proj;                   // [intermediate, hidden]
  DeviceMatrix down_proj;                            // [hidden, intermediate]
};

/// How keys and values are stored.
enum class KvFormat { f32, f16, bf16 };
inline constexpr std::size_t kv_element_bytes(KvFormat format) { return format == KvFormat::f32 ? 4 : 2; }

/// Keys (after QK-norm and RoPE) and values of one layer: [positions, n_kv_heads, pitch] each.
struct LayerCache {
  KvFormat format = KvFormat::f32;
  void* keys = nullptr;
  void* values = nullptr;
};
/// Of one position.
inline constexpr std::size_t key_value_bytes(const AttentionShape& shape, KvFormat format) {
  return 2 * static_cast<std::size_t>(shape.n_kv_heads * shape.pitch()) * kv_element_bytes(format);
}

/// The weights and angles that turn projections into queries and keys.
struct Rotation {
  const float* q_norm = nullptr;  ///< [head_dim]
  const float* k_norm = nullptr;  ///< [head_dim]
  const float* angles = nullptr;  ///< [positions, head_dim / 2, 2]: cosine and sine
  float eps = 0;
};

/// What attention_decode leaves for the merge: the softmax over each chunk of positions by itself.
struct Partials {
  float* peak = nullptr;   ///< [decode_splits, n_q_heads] largest score
  float* mass = nullptr;   ///< [decode_splits, n_q_heads] Σ exp(score − peak)
  float* mixed = nullptr;  ///< [decode_splits, n_q_heads, head_dim] Σ exp(score − peak)·v
};
/// Chunks that one head's positions are split into at most.
inline constexpr int decode_splits = 16;
inline constexpr int least_chunk = 64;
inline constexpr int head_rows_per_block = 64;
inline constexpr int head_blocks(int vocab_size) {
  return (vocab_size + head_rows_per_block - 1) / head_rows_per_block;
}

/// What each block of the head finds in its rows.  [head_blocks] each
struct HeadBlocks {
  float* best_logit = nullptr;  ///< of the ids that may be chosen; −∞ if there are none
  int* best_id = nullptr;       ///< the lowest of equals
  float* peak = nullptr;        ///< largest logit of all
  double* mass = nullptr;       ///< Σ exp(logit − peak); NaN if a logit is not finite
};

/// How sample() chooses: engine::SamplerOptions without penalties, in device memory.
struct Sampling {
  float temperature = 0;  ///< 0: the best
  int top_k = 1;          ///< 1..most_top_k where temperature > 0
  float top_p = 1, min_p = 0;
  std::uint64_t seed = 0;
  int n_ids = 0;  ///< only ids below are chosen
  int n_stop_ids = 0;
  int stop_ids[8] = {};  ///< after these no more are chosen
};
inline constexpr int most_top_k = 64;
inline constexpr int most_stop_ids = 8;

/// The decode steps' state, ints in device memory: the token to run and its position, how many tokens have
/// been chosen, and whether no more are.
enum StateIndex { state_token, state_position, state_chosen, state_stopped, state_size };

// Decode: one token. `position`, in device memory, is the token's.

/// x = table[tokens].  x: [rows, hidden]
void embed(Stream& stream, const DeviceMatrix& table, const int* tokens, int rows, float* x);
/// out = W·rms_norm(x), or W·x where norm is null.  x: [cols], out: [W.rows]
void norm_qkv(Stream& stream, const DeviceMatrix& qkv, const float* x, const float* norm, float eps,
              float* out);
/// QK-norm, RoPE, the new key and value into the cache, and attention over each chunk of positions. With
/// `rotated`, qkv and the cache already hold what rotate() left.  qkv: [qkv_width]
void attention_decode(Stream& stream, const AttentionShape& shape, const float* qkv, bool rotated,
                      const Rotation& rotation, const LayerCache& cache, const int* position,
                      const Partials& partials);
/// The attention over all positions from that over each chunk.  mixed: [q_width]
void merge_partials(Stream& stream, const AttentionShape& shape, const Partials& partials,
                    const int* position, float* mixed);
/// x += o_proj·mixed, with mixed merged from the partials where the pointer is null.
void attn_out(Stream& stream, const AttentionShape& shape, const DeviceMatrix& o_proj,
              const Partials& partials, const int* position, const float* mixed, float* x);
/// act = silu(gate·n)·(up·n), n = rms_norm(x), or x where norm is null.  act: [intermediate]
void swiglu(Stream& stream, const DeviceMatrix& gate, const DeviceMatrix& up, const float* x,
            const float* norm, float eps, float* act);
/// x += down_proj·act
void mlp_down(Stream& stream, const DeviceMatrix& down_proj, const float* act, float* x);
/// What decode_layers() is given. Every layer's weights lie `weights_apart` bytes behind those of the layer
/// before, in one format; its keys and values `cache_apart`.
struct DecodeLayers {
  AttentionShape shape;
  int n_layers = 0;
  float eps = 0;
  DeviceLayer weights;  ///< of layer 0
  std::size_t weights_apart = 0;
  LayerCache cache;  ///< of layer 0
  std::size_t cache_apart = 0;
  const float* angles = nullptr;  ///< as in Rotation
  const int* position = nullptr;
  float* x = nullptr;    ///< [hidden] in: the embedding, out: what the head takes
  float* qkv = nullptr;  ///< [qkv_width]
  float* act = nullptr;  ///< [intermediate]
  Partials partials;
  unsigned* counts = nullptr;  ///< of the GridBarrier

  /// The launcher's check of pointers sees these.
  template <class Visit>
  void each_pointer(Visit visit) const {
    for (const DeviceMatrix* m :
         {&weights.qkv, &weights.o_proj, &weights.gate_proj, &weights.up_proj, &weights.down_proj}) {
      visit(m->data);
      visit(m->scales);
    }
    for (const float* p :
         {weights.input_norm, weights.q_norm, weights.k_norm, weights.post_attention_norm, angles,
          static_cast<const float*>(x), static_cast<const float*>(qkv), static_cast<const float*>(act),
          static_cast<const float*>(partials.peak), static_cast<const float*>(partials.mass),
          static_cast<const float*>(partials.mixed)}) {
      visit(p);
    }
    visit(cache.keys);
    visit(cache.values);
    visit(position);
    visit(counts);
  }
};
inline constexpr int persistent_most_dim = 128;
/// norm_qkv, attention_decode, attn_out, swiglu and mlp_down of every layer in one cooperative kernel of
/// `blocks` blocks, by the same device functions: the same values, to the bit.
void decode_layers(Stream& stream, const DecodeLayers& layers, unsigned blocks);
/// The blocks that decode_layers() is best launched with: as many as run at once, or as there is work for. 0:
/// the device has no cooperative launch, or a block does not fit.
unsigned decode_layers_blocks(const DecodeLayers& layers);
/// logits = lm_head·rms_norm(x), or lm_head·x where norm is null, and what each block of rows finds.
void head(Stream& stream, const DeviceMatrix& lm_head, const float* x, const float* norm, float eps,
          const Sampling* sampling, float* logits, const HeadBlocks& found);
/// Chooses the next token as engine::Sampler does and makes it the token to run, at the next position;
/// appends it and its log probability (of the model, before any filter). Does nothing once `state` says
/// stopped; stops without choosing if a logit is not finite, or too many tie for top-k.  logits: [n_ids or
/// more]
void sample(Stream& stream, const float* logits, const HeadBlocks& found, int blocks,
            const Sampling* sampling, int* state, int* ids, double* log_probabilities);

// Prefill: rows ≥ 1 at consecutive positions.

/// out = x / sqrt(mean(x²) + eps)·weight.  x, out: [rows, width]
void rms_norm(Stream& stream, const float* x, const float* weight, float eps, int rows, int width,
              float* out);
/// out = x·Wᵀ, or out += where `add`.  x: [rows, W.cols], out: [rows, W.rows]
void linear(Stream& stream, const DeviceMatrix& w, const float* x, int rows, bool add, float* out);
/// Rows of activations as tensor cores take them: the nearest bf16 and, with three parts, the nearest to the
/// rest and to the rest of that, which together are the fp32 value to its last bit. (Two would leave 2⁻¹⁷ of
/// it, which layers amplify beyond the tolerance.)
struct SplitRows {
  int pitch = 0;         ///< values from one row to the next, those behind the last column zero
  int parts = 1;         ///< 1 or 3
  Bf16* data = nullptr;  ///< [parts, rows, pitch]
};
inline constexpr int split_depth = 32;  ///< columns of a step
inline constexpr int split_pitch(int cols) { return (cols + split_depth - 1) / split_depth * split_depth; }
void split_activations(Stream& stream, const float* x, int rows, int cols, const SplitRows& to);
/// linear() on tensor cores, from compute capability 8.0 on (tensor_cores() says), for some formats. Sums and
/// products are fp32; with one part only, x is rounded to bf16.
inline constexpr bool linear_tensor_takes(WeightFormat format) {
  return format == WeightFormat::bf16 || format == WeightFormat::q8_0 || format == WeightFormat::int4;
}
void linear_tensor(Stream& stream, const DeviceMatrix& w, const SplitRows& x, int rows, bool add, float* out);
/// QK-norm and RoPE of the queries and keys in qkv, in place; keys and values also into the cache, rounded to
/// its format in both.  qkv: [rows, qkv_width]
void rotate(Stream& stream, const AttentionShape& shape, const Rotation& rotation, float* qkv, int rows,
            int first_position, const LayerCache& cache);
/// Only the last part: the keys and values in qkv as they are, into the cache.
void store_kv(Stream& stream, const AttentionShape& shape, float* qkv, int rows, int first_position,
              const LayerCache& cache);
/// Causal attention of rows at first_position, … over the cache.  qkv: [rows, qkv_width], mixed: [rows,
/// q_width]
void attention_prefill(Stream& stream, const AttentionShape& shape, const float* qkv, const LayerCache& cache,
                       int rows, int first_position, float* mixed);
/// The same on tensor cores, for head_dim up to flash_most_dim: queries, keys, values and the shares of the
/// softmax are rounded to bf16.
inline constexpr int flash_most_dim = 128;
void attention_prefill_tensor(Stream& stream, const AttentionShape& shape, const float* qkv,
                              const LayerCache& cache, int rows, int first_position, float* mixed);
/// act = silu(gate)·up.  All [count]
void swiglu_pairs(Stream& stream, const float* gate, const float* up, std::size_t count, float* act);

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

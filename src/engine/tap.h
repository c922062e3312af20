#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fs::engine {

/// The points of a forward pass where its values can be seen (and replaced), in the order in which one layer
/// produces them. The same names on every backend and in the golden files.
enum class TapPoint {
  embed,       ///< [rows, hidden] embedding rows
  attn_norm,   ///< [rows, hidden] input_layernorm
  q,           ///< [rows, n_q_heads, head_dim] after QK-norm and RoPE
  k,           ///< [rows, n_kv_heads, head_dim] after QK-norm and RoPE, as the KV cache holds it
  v,           ///< [rows, n_kv_heads, head_dim]
  attn_out,    ///< [rows, n_q_heads, head_dim] softmax(q·k)·v, before o_proj
  attn_resid,  ///< [rows, hidden] residual after attention
  mlp_norm,    ///< [rows, hidden] post_attention_layernorm
  mlp_act,     ///< [rows, intermediate] silu(gate)·up
  block_out,   ///< [rows, hidden] residual after the MLP
  final_norm,  ///< [rows, hidden] model.norm
  logits,      ///< [1 or rows, vocab_size]
};
inline constexpr std::size_t tap_point_count = 12;

/// "embed", "attn_norm", … Points before `attn_norm` and after `block_out` belong to no layer.
std::string_view name(TapPoint point);
std::optional<TapPoint> tap_point_from_name(std::string_view name);
bool per_layer(TapPoint point);
/// The key of a tap in recorded and golden files: "embed", "layers.3.mlp_act".
std::string tap_key(TapPoint point, std::size_t layer);

/// Values that one forward call produced, delivered while they are alive.
struct Tap {
  TapPoint point;
  std::size_t layer;           ///< 0 where the point belongs to no layer
  std::uint64_t run;           ///< which forward call of the session, from 0
  std::size_t first_position;  ///< absolute position of row 0
  std::size_t rows;            ///< tokens
  std::size_t heads;           ///< 1 where the point has no head axis
  std::size_t width;           ///< head_dim, or the row's width
  std::span<float>
      values;  ///< [rows, heads, width], row-major, contiguous. Writable: the pass goes on with what
               ///< the observer leaves here (injection); a backend on a device writes it back
};

/// Receives taps. Points that it does not want cost nothing.
class TapObserver {
 public:
  virtual ~TapObserver() = default;
  virtual bool wants(TapPoint point, std::size_t layer) const = 0;
  virtual void observe(const Tap& tap) = 0;
};

/// Whether an observer, if there is one, wants anything of a pass over `n_layers`.
inline bool watches(const TapObserver* taps, std::size_t n_layers) {
  if (taps == nullptr) return false;
  for (std::size_t point = 0; point < tap_point_count; ++point) {
    for (std::size_t layer = 0; layer < n_layers; ++layer) {
      if (taps->wants(static_cast<TapPoint>(point), layer)) return true;
    }
  }
  return false;
}

}  // namespace fs::engine

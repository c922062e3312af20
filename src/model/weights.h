#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "model/config.h"
#include "model/dtype.h"

namespace fs::model {

/// A weight matrix, row-major: `rows` outputs of `cols` inputs each (y = W·x). A view: Weights::storage owns
/// the bytes, or a mapped file does.
struct Matrix {
  Dtype dtype = Dtype::bf16;
  std::size_t rows = 0, cols = 0;
  const std::byte* data = nullptr;

  std::size_t row_bytes() const { return cols * element_bytes(dtype); }
  /// Decodes row `row` to fp32. out.size() == cols.
  void row(std::size_t row, std::span<float> out) const { decode(dtype, data + row * row_bytes(), out); }
};

/// A norm's weight, decoded to fp32 at load: a few KiB a layer.
using Vector = std::vector<float>;

struct LayerWeights {
  Vector input_norm;           ///< [hidden] input_layernorm
  Matrix q_proj;               ///< [n_q_heads·head_dim, hidden]
  Matrix k_proj, v_proj;       ///< [n_kv_heads·head_dim, hidden]
  Vector q_norm, k_norm;       ///< [head_dim] RMSNorm of every head, before RoPE
  Matrix o_proj;               ///< [hidden, n_q_heads·head_dim]
  Vector post_attention_norm;  ///< [hidden] post_attention_layernorm
  Matrix gate_proj, up_proj;   ///< [intermediate, hidden]
  Matrix down_proj;            ///< [hidden, intermediate]
};

/// Every tensor of the model by the field it fills. Immutable once loaded; copies share the storage.
struct Weights {
  Matrix embed_tokens;               ///< [vocab_size, hidden]
  std::vector<LayerWeights> layers;  ///< [n_layers]
  Vector final_norm;                 ///< [hidden] model.norm
  Matrix lm_head;                    ///< [vocab_size, hidden]; the same bytes as embed_tokens where tied
  std::vector<std::shared_ptr<const void>> storage;  ///< keeps mapped files and generated tensors alive
};

}  // namespace fs::model

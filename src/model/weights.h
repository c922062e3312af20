#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "model/config.h"
#include "model/dtype.h"
#include "model/tensor.h"

namespace fs::model {

/// A weight matrix, row-major: `rows` outputs of `cols` inputs each (y = W·x). A view: Weights::storage owns
/// the bytes, or a mapped file does.
struct Matrix {
  Dtype dtype = Dtype::bf16;
  std::size_t rows = 0, cols = 0;
  const std::byte* data = nullptr;
  /// The same weights in an order that suits a backend, which made it and alone knows it; `data` is then
  /// null.
  const std::byte* arranged = nullptr;

  std::size_t row_bytes() const { return model::row_bytes(dtype, cols); }
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

/// The tensors that are tables of the vocabulary.
inline constexpr std::string_view embedding_name = "model.embed_tokens.weight", head_name = "lm_head.weight";

/// A tensor that a model is made of: its Hugging Face name, and its shape [cols] or [rows, cols].
struct TensorShape {
  std::string name;
  std::vector<std::size_t> shape;
};

/// Every tensor a checkpoint of this configuration must hold, in the order of the forward pass. Without
/// lm_head.weight where the embeddings are tied.
std::vector<TensorShape> expected_tensors(const Config& config);

/// Throws Error(unusable), naming `source` and the tensor, unless the tensors are exactly the expected ones,
/// by name and shape. Where tied, a stored lm_head.weight of the right shape is let pass: it is not used.
void check_tensors(const Config& config, std::span<const Tensor> tensors, const std::string& source);

/// Checks the tensors and puts each in its field. Matrices view the tensors' bytes, which `storage` keeps
/// alive; norms are decoded. The one place that knows about tied embeddings.
Weights assemble(const Config& config, std::span<const Tensor> tensors, const std::string& source,
                 std::vector<std::shared_ptr<const void>> storage);

/// The inverse of assemble(): every expected tensor, in their order, as a view of the weights (norms are
/// F32).
std::vector<Tensor> list_tensors(const Config& config, const Weights& weights);

/// Calls replace(name, matrix) for every matrix, which it may change, in the order of expected_tensors();
/// where the embeddings are tied, the head follows the embedding.
void replace_matrices(const Config& config, Weights& weights,
                      const std::function<void(const std::string& name, Matrix& matrix)>& replace);

/// Of a tied model that stores lm_head.weight all the same: whether it equals the embedding, byte for byte.
/// Nothing where it is not stored, or not tied.
std::optional<bool> redundant_head_equals_embedding(const Config& config, std::span<const Tensor> tensors);

}  // namespace fs::model

#include "model/weights.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "model/quoted.h"

namespace fs::model {
namespace {

constexpr std::string_view final_norm_name = "model.norm.weight";

std::string layer_name(std::size_t layer, std::string_view part) {
  return fmt::format("model.layers.{}.{}.weight", layer, part);
}

using ByName = std::unordered_map<std::string_view, const Tensor*>;

ByName by_name(std::span<const Tensor> tensors) {
  ByName map;
  for (const Tensor& tensor : tensors) map.emplace(tensor.name, &tensor);
  return map;
}

Matrix matrix(const ByName& tensors, std::string_view name) {
  const Tensor& tensor = *tensors.at(name);
  return {tensor.dtype, tensor.shape[0], tensor.shape[1], tensor.bytes.data()};
}

Vector vector(const ByName& tensors, std::string_view name) {
  const Tensor& tensor = *tensors.at(name);
  Vector values(tensor.shape[0]);
  decode(tensor.dtype, tensor.bytes.data(), values);
  return values;
}

/// " and 3 more", or nothing.
std::string and_more(std::size_t count) { return count > 1 ? fmt::format(" and {} more", count - 1) : ""; }

void check_shape(const Tensor& tensor, const TensorShape& expected, const std::string& source) {
  if (tensor.shape != expected.shape) {
    fail(ExitCode::unusable, "{}: tensor {} has shape {}, expected {} by config.json",
         tensor.source.empty() ? source : tensor.source, in_quotes(tensor.name), shape_text(tensor.shape),
         shape_text(expected.shape));
  }
}

}  // namespace

std::vector<TensorShape> expected_tensors(const Config& config) {
  const std::size_t hidden = config.hidden, q = config.q_width(), kv = config.kv_width();
  std::vector<TensorShape> expected;
  expected.push_back({std::string(embedding_name), {config.vocab_size, hidden}});
  for (std::size_t layer = 0; layer < config.n_layers; ++layer) {
    const auto add = [&](std::string_view part, std::vector<std::size_t> shape) {
      expected.push_back({layer_name(layer, part), std::move(shape)});
    };
    add("input_layernorm", {hidden});
    add("self_attn.q_proj", {q, hidden});
    add("self_attn.k_proj", {kv, hidden});
    add("self_attn.v_proj", {kv, hidden});
    add("self_attn.q_norm", {config.head_dim});
    add("self_attn.k_norm", {config.head_dim});
    add("self_attn.o_proj", {hidden, q});
    add("post_attention_layernorm", {hidden});
    add("mlp.gate_proj", {config.intermediate, hidden});
    add("mlp.up_proj", {config.intermediate, hidden});
    add("mlp.down_proj", {hidden, config.intermediate});
  }
  expected.push_back({std::string(final_norm_name), {hidden}});
  if (!config.tie_word_embeddings) expected.push_back({std::string(head_name), {config.vocab_size, hidden}});
  return expected;
}

void check_tensors(const Config& config, std::span<const Tensor> tensors, const std::string& source) {
  const ByName stored = by_name(tensors);
  std::vector<TensorShape> expected = expected_tensors(config);

  std::vector<std::string> missing;
  for (const TensorShape& item : expected) {
    const auto found = stored.find(item.name);
    if (found == stored.end()) {
      missing.push_back(item.name);
    } else {
      check_shape(*found->second, item, source);
    }
  }
  if (!missing.empty()) {
    const std::string_view hint =
        missing[0] == head_name ? " (config.json says tie_word_embeddings false)" : "";
    fail(ExitCode::unusable, "{}: tensor \"{}\"{} missing, expected by config.json{}", source, missing[0],
         and_more(missing.size()), hint);
  }

  if (config.tie_word_embeddings) {
    const TensorShape head{std::string(head_name), {config.vocab_size, config.hidden}};
    if (const auto found = stored.find(head_name); found != stored.end())
      check_shape(*found->second, head, source);
    expected.push_back(head);
  }
  std::vector<std::string_view> known;
  for (const TensorShape& item : expected) known.push_back(item.name);
  std::sort(known.begin(), known.end());
  std::vector<const Tensor*> surplus;
  for (const Tensor& tensor : tensors) {
    if (!std::binary_search(known.begin(), known.end(), tensor.name)) surplus.push_back(&tensor);
  }
  if (!surplus.empty()) {
    fail(ExitCode::unusable, "{}: tensor {}{} not expected: no part of the model that config.json describes",
         surplus[0]->source.empty() ? source : surplus[0]->source, in_quotes(surplus[0]->name),
         and_more(surplus.size()));
  }
}

Weights assemble(const Config& config, std::span<const Tensor> tensors, const std::string& source,
                 std::vector<std::shared_ptr<const void>> storage) {
  check_tensors(config, tensors, source);
  const ByName stored = by_name(tensors);
  Weights weights;
  weights.embed_tokens = matrix(stored, embedding_name);
  for (std::size_t layer = 0; layer < config.n_layers; ++layer) {
    const auto matrix_of = [&](std::string_view part) { return matrix(stored, layer_name(layer, part)); };
    const auto vector_of = [&](std::string_view part) { return vector(stored, layer_name(layer, part)); };
    weights.layers.push_back({.input_norm = vector_of("input_layernorm"),
                              .q_proj = matrix_of("self_attn.q_proj"),
                              .k_proj = matrix_of("self_attn.k_proj"),
                              .v_proj = matrix_of("self_attn.v_proj"),
                              .q_norm = vector_of("self_attn.q_norm"),
                              .k_norm = vector_of("self_attn.k_norm"),
                              .o_proj = matrix_of("self_attn.o_proj"),
                              .post_attention_norm = vector_of("post_attention_layernorm"),
                              .gate_proj = matrix_of("mlp.gate_proj"),
                              .up_proj = matrix_of("mlp.up_proj"),
                              .down_proj = matrix_of("mlp.down_proj")});
  }
  weights.final_norm = vector(stored, final_norm_name);
  weights.lm_head = config.tie_word_embeddings ? weights.embed_tokens : matrix(stored, head_name);
  weights.storage = std::move(storage);
  return weights;
}

std::vector<Tensor> list_tensors(const Config& config, const Weights& weights) {
  std::vector<Tensor> tensors;
  const auto add_matrix = [&](std::string name, const Matrix& m) {
    const std::span bytes(m.data, m.rows * m.row_bytes());
    tensors.push_back({std::move(name), m.dtype, {m.rows, m.cols}, bytes, {}});
  };
  const auto add_vector = [&](std::string name, const Vector& v) {
    tensors.push_back({std::move(name), Dtype::f32, {v.size()}, std::as_bytes(std::span(v)), {}});
  };
  add_matrix(std::string(embedding_name), weights.embed_tokens);
  for (std::size_t layer = 0; layer < config.n_layers; ++layer) {
    const LayerWeights& w = weights.layers[layer];
    add_vector(layer_name(layer, "input_layernorm"), w.input_norm);
    add_matrix(layer_name(layer, "self_attn.q_proj"), w.q_proj);
    add_matrix(layer_name(layer, "self_attn.k_proj"), w.k_proj);
    add_matrix(layer_name(layer, "self_attn.v_proj"), w.v_proj);
    add_vector(layer_name(layer, "self_attn.q_norm"), w.q_norm);
    add_vector(layer_name(layer, "self_attn.k_norm"), w.k_norm);
    add_matrix(layer_name(layer, "self_attn.o_proj"), w.o_proj);
    add_vector(layer_name(layer, "post_attention_layernorm"), w.post_attention_norm);
    add_matrix(layer_name(layer, "mlp.gate_proj"), w.gate_proj);
    add_matrix(layer_name(layer, "mlp.up_proj"), w.up_proj);
    add_matrix(layer_name(layer, "mlp.down_proj"), w.down_proj);
  }
  add_vector(std::string(final_norm_name), weights.final_norm);
  if (!config.tie_word_embeddings) add_matrix(std::string(head_name), weights.lm_head);
  return tensors;
}

void replace_matrices(const Config& config, Weights& weights,
                      const std::function<void(const std::string& name, Matrix& matrix)>& replace) {
  const std::byte* const table = weights.embed_tokens.data;  // as long as a tied head is the same
  replace(std::string(embedding_name), weights.embed_tokens);
  for (std::size_t layer = 0; layer < config.n_layers; ++layer) {
    LayerWeights& w = weights.layers[layer];
    replace(layer_name(layer, "self_attn.q_proj"), w.q_proj);
    replace(layer_name(layer, "self_attn.k_proj"), w.k_proj);
    replace(layer_name(layer, "self_attn.v_proj"), w.v_proj);
    replace(layer_name(layer, "self_attn.o_proj"), w.o_proj);
    replace(layer_name(layer, "mlp.gate_proj"), w.gate_proj);
    replace(layer_name(layer, "mlp.up_proj"), w.up_proj);
    replace(layer_name(layer, "mlp.down_proj"), w.down_proj);
  }
  if (config.tie_word_embeddings && weights.lm_head.data == table) {
    weights.lm_head = weights.embed_tokens;
  } else {
    replace(std::string(head_name), weights.lm_head);
  }
}

std::optional<bool> redundant_head_equals_embedding(const Config& config, std::span<const Tensor> tensors) {
  const ByName stored = by_name(tensors);
  const auto head = stored.find(head_name), embedding = stored.find(embedding_name);
  if (!config.tie_word_embeddings || head == stored.end() || embedding == stored.end()) return std::nullopt;
  return head->second->dtype == embedding->second->dtype &&
         std::ranges::equal(head->second->bytes, embedding->second->bytes);
}

}  // namespace fs::model

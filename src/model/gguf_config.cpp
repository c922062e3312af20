#include "model/gguf_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "model/limits.h"
#include "model/quoted.h"
#include "model/tensor.h"

namespace fs::model {
namespace {

constexpr std::string_view architecture = "qwen3";
constexpr std::string_view embedding = "token_embd.weight", head = "output.weight";

/// The qwen3.* keys that parse_gguf_config understands.
constexpr std::array<std::string_view, 13> understood = {
    "qwen3.block_count",
    "qwen3.context_length",
    "qwen3.embedding_length",
    "qwen3.feed_forward_length",
    "qwen3.vocab_size",
    "qwen3.attention.head_count",
    "qwen3.attention.head_count_kv",
    "qwen3.attention.key_length",
    "qwen3.attention.value_length",
    "qwen3.attention.layer_norm_rms_epsilon",
    "qwen3.rope.dimension_count",
    "qwen3.rope.freq_base",
    "qwen3.rope.scaling.type",
};

/// Throws unless `key`, where it is there, has the one value that is implemented.
void expect_text(const GgufMetadata& metadata, std::string_view key, std::string_view expected) {
  if (metadata.contains(key) && metadata.text(key) != expected) {
    metadata.reject(key, fmt::format("\"{}\"", expected));
  }
}

/// Throws if the file is no whole Qwen3 model.
void check_kind(const GgufMetadata& metadata) {
  if (metadata.text("general.architecture") != architecture) {
    metadata.reject("general.architecture", fmt::format("\"{}\"", architecture));
  }
  expect_text(metadata, "general.type", "model");
  if (metadata.contains("split.count") && metadata.integer("split.count", 0, SIZE_MAX >> 1U) > 1) {
    metadata.reject("split.count", "1: a model split over several files is not implemented");
  }
  expect_text(metadata, "qwen3.rope.scaling.type", "none");
  for (const auto& [key, value] : metadata.values()) {
    if (key.starts_with("qwen3.") && std::ranges::find(understood, key) == understood.end()) {
      fail(ExitCode::unusable, "{}: {} is {}: not implemented, expected no such key", metadata.source(),
           in_quotes(key), describe(value));
    }
  }
}

/// llama.cpp's number (llama_ftype) for a file with most weights in a type.
std::uint32_t file_type(GgmlType matrices) {
  switch (matrices) {
    case GgmlType::f32:
      return 0;
    case GgmlType::f16:
      return 1;
    case GgmlType::q8_0:
      return 7;
    case GgmlType::bf16:
      return 32;
    default:
      return 1024;  // "guessed": of no type that fs writes
  }
}

const GgufTensor* find(const GgufFile& file, std::string_view name) {
  const auto found = std::ranges::find(file.tensors, name, &GgufTensor::name);
  return found == file.tensors.end() ? nullptr : &*found;
}

/// Rows of the embedding table: the vocabulary, as the tensor has it.
std::size_t read_vocab_size(const GgufFile& file) {
  const GgufTensor* const table = find(file, embedding);
  if (table == nullptr) {
    fail(ExitCode::unusable, "{}: tensor \"{}\" is missing", file.metadata.source(), embedding);
  }
  if (table->shape.size() != 2 || table->shape[0] > most_width) {
    fail(ExitCode::unusable, "{}: tensor \"{}\" has shape {}, expected [vocabulary, qwen3.embedding_length]",
         file.metadata.source(), embedding, shape_text(table->shape));
  }
  const auto stated = file.metadata.find_integer("qwen3.vocab_size", 1, most_width);
  if (stated && *stated != table->shape[0]) {
    file.metadata.reject("qwen3.vocab_size", fmt::format("{}, the rows of {}", table->shape[0], embedding));
  }
  return table->shape[0];
}

}  // namespace

Config parse_gguf_config(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata;
  check_kind(metadata);
  Config config;
  config.vocab_size = read_vocab_size(file);
  config.hidden = metadata.integer("qwen3.embedding_length", 1, most_width);
  config.intermediate = metadata.integer("qwen3.feed_forward_length", 1, most_width);
  config.n_layers = metadata.integer("qwen3.block_count", 1, most_layers);
  config.n_q_heads = metadata.integer("qwen3.attention.head_count", 1, most_heads);
  config.n_kv_heads = metadata.integer("qwen3.attention.head_count_kv", 1, most_heads);
  config.head_dim = metadata.integer("qwen3.attention.key_length", 2, most_heads);
  config.max_positions = metadata.integer("qwen3.context_length", 1, most_width);
  config.rms_norm_eps =
      metadata.number("qwen3.attention.layer_norm_rms_epsilon", least_rms_norm_eps, most_rms_norm_eps);
  config.rope_theta = metadata.number("qwen3.rope.freq_base", least_rope_theta, most_rope_theta);
  config.tie_word_embeddings = find(file, head) == nullptr;

  if (config.n_q_heads % config.n_kv_heads != 0) {
    metadata.reject("qwen3.attention.head_count",
                    fmt::format("a multiple of qwen3.attention.head_count_kv = {}", config.n_kv_heads));
  }
  if (config.head_dim % 2 != 0) {
    metadata.reject("qwen3.attention.key_length", "an even number (RoPE rotates pairs)");
  }
  if (config.q_width() > most_width) {
    metadata.reject("qwen3.attention.key_length",
                    fmt::format("at most {} with {} heads", most_width / config.n_q_heads, config.n_q_heads));
  }
  for (const std::string_view key : {"qwen3.attention.value_length", "qwen3.rope.dimension_count"}) {
    const bool required = key.ends_with("value_length");
    if ((required || metadata.contains(key)) && metadata.integer(key, 0, most_heads) != config.head_dim) {
      metadata.reject(key, fmt::format("{}, as qwen3.attention.key_length", config.head_dim));
    }
  }
  return config;
}

void add_config(GgufPairs& pairs, const Config& config, std::string_view name, GgmlType matrices) {
  const auto add_size = [&](std::string_view key, std::size_t size) {
    pairs.add_u32(key, static_cast<std::uint32_t>(size));  // far below 2^32: limits.h
  };
  pairs.add_text("general.architecture", architecture);
  pairs.add_text("general.type", "model");
  pairs.add_text("general.name", name);
  add_size("qwen3.block_count", config.n_layers);
  add_size("qwen3.context_length", config.max_positions);
  add_size("qwen3.embedding_length", config.hidden);
  add_size("qwen3.feed_forward_length", config.intermediate);
  add_size("qwen3.attention.head_count", config.n_q_heads);
  add_size("qwen3.attention.head_count_kv", config.n_kv_heads);
  pairs.add_f32("qwen3.rope.freq_base", static_cast<float>(config.rope_theta));
  pairs.add_f32("qwen3.attention.layer_norm_rms_epsilon", static_cast<float>(config.rms_norm_eps));
  add_size("qwen3.attention.key_length", config.head_dim);
  add_size("qwen3.attention.value_length", config.head_dim);
  add_size("qwen3.vocab_size", config.vocab_size);
  pairs.add_u32("general.file_type", file_type(matrices));
  pairs.add_u32("general.quantization_version", 2);
}

std::string gguf_tensor_name(std::string_view name) {
  // Parts of a layer, Hugging Face's name first.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> parts = {{
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"self_attn.o_proj", "attn_output"},
      {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
  }};
  constexpr std::string_view layers = "model.layers.", weight = ".weight";
  if (name == "model.embed_tokens.weight") return std::string(embedding);
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return std::string(head);
  name.remove_prefix(layers.size());
  name.remove_suffix(weight.size());
  const std::size_t dot = name.find('.');
  const auto part =
      std::ranges::find(parts, name.substr(dot + 1), [](const auto& pair) { return pair.first; });
  return fmt::format("blk.{}.{}.weight", name.substr(0, dot), part->second);
}

}  // namespace fs::model

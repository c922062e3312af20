#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace fs::model {

/// The numbers that define a dense Qwen3 model: every field of config.json that changes the maths.
struct Config {
  std::size_t vocab_size = 0;     ///< rows of the embedding; may exceed the tokenizer's ids (padding)
  std::size_t hidden = 0;         ///< hidden_size: width of the residual stream
  std::size_t intermediate = 0;   ///< intermediate_size: width inside the MLP
  std::size_t n_layers = 0;       ///< num_hidden_layers
  std::size_t n_q_heads = 0;      ///< num_attention_heads
  std::size_t n_kv_heads = 0;     ///< num_key_value_heads; divides n_q_heads
  std::size_t head_dim = 0;       ///< even; not hidden / n_q_heads
  std::size_t max_positions = 0;  ///< max_position_embeddings: the context limit
  double rms_norm_eps = 0;
  double rope_theta = 0;
  bool tie_word_embeddings = false;  ///< lm_head is the embedding table

  std::size_t q_width() const { return n_q_heads * head_dim; }
  std::size_t kv_width() const { return n_kv_heads * head_dim; }
  /// Query heads that share one key/value head.
  std::size_t group() const { return n_q_heads / n_kv_heads; }
  /// Parameters of the model, a tied table counted once (751,632,384 stored become 596,049,920).
  std::size_t parameters() const;
};

/// Parses config.json. Throws Error(unusable) naming `source`, the key, what was found and what is expected,
/// when a field is missing, of the wrong type, out of range or contradicts another; and for every feature
/// that changes the maths and is not implemented (sliding window, rope scaling, attention bias, other
/// activations, other architectures). Source of the fields: Hugging Face Qwen3Config.
Config parse_config(std::string_view json, const std::string& source);

/// From generation_config.json, or from config.json where that file is absent or does not say.
struct GenerationConfig {
  std::vector<TokenId> eos_ids;  ///< generation stops after any of these; empty: it never does
};

/// Reads eos_token_id (an id, a list of ids, or null for none) from generation_config.json or config.json;
/// nothing if the key is absent. Throws Error(unusable) as parse_config does; every id must be < vocab_size.
std::optional<GenerationConfig> parse_generation_config(std::string_view json, const std::string& source,
                                                        std::size_t vocab_size);

}  // namespace fs::model

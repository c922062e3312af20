#include "model/config.h"

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "model/json_object.h"
#include "model/limits.h"
#include "model/quoted.h"

namespace fs::model {
namespace {

/// Throws unless `key`, where it is set at all, is the one value that is implemented.
void expect_text(const JsonObject& object, std::string_view key, std::string_view expected) {
  const std::string wanted = fmt::format("\"{}\"", expected);
  const auto value = object.at(key, wanted);
  std::string_view found;
  if (value.get(found) || found != expected) object.reject(key, value, wanted);
}

void expect_false(const JsonObject& object, std::string_view key, std::string_view feature) {
  if (object.boolean(key)) {
    fail(ExitCode::unusable, "{}: {} is true: {} is not implemented, expected false", object.where(), key,
         feature);
  }
}

/// "architectures", where present, is this one causal language model.
void check_architectures(const JsonObject& object) {
  const auto value = object.find_set("architectures");
  if (!value) return;
  constexpr std::string_view expected = "[\"Qwen3ForCausalLM\"]";
  simdjson::dom::array names;
  if (value->get(names) || names.size() != 1) object.reject("architectures", *value, expected);
  const simdjson::dom::element only = *names.begin();
  std::string_view name;
  if (only.get(name) || name != "Qwen3ForCausalLM") {
    fail(ExitCode::unusable, "{}: architectures[0] is {}, expected \"Qwen3ForCausalLM\"", object.where(),
         describe(only));
  }
}

/// Every layer attends to every earlier position. sliding_window counts only with use_sliding_window, as in
/// Qwen3Config; layer_types, which newer files spell out, must agree.
void check_attention(const JsonObject& object, std::size_t n_layers) {
  expect_false(object, "attention_bias", "a bias in the attention projections");
  expect_false(object, "use_sliding_window", "sliding-window attention");
  const auto value = object.find_set("layer_types");
  if (!value) return;
  simdjson::dom::array types;
  if (value->get(types) || types.size() != n_layers) {
    object.reject("layer_types", *value, fmt::format("an array of num_hidden_layers = {} strings", n_layers));
  }
  std::size_t layer = 0;
  for (const simdjson::dom::element item : types) {
    std::string_view type;
    if (item.get(type) || type != "full_attention") {
      fail(ExitCode::unusable, "{}: layer_types[{}] is {}, expected \"full_attention\"", object.where(),
           layer, describe(item));
    }
    ++layer;
  }
}

/// The rope_theta of unscaled rotary embeddings, from either spelling: rope_theta (with rope_scaling null),
/// or rope_parameters {"rope_type": "default", "rope_theta": …} of newer transformers.
double read_rope_theta(const JsonObject& object) {
  std::optional<double> theta;
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const auto value = object.find_set(key);
    if (!value) continue;
    const JsonObject rope(*value, fmt::format("{}: {}", object.where(), key));
    for (const auto field : rope.fields()) {
      if (field.key == "rope_type" || field.key == "type") {
        expect_text(rope, field.key, "default");
      } else if (field.key == "rope_theta") {
        theta = rope.number(field.key, least_rope_theta, most_rope_theta);
      } else {
        fail(ExitCode::unusable, "{}: {} is not implemented, expected rope_type \"default\" alone",
             rope.where(), in_quotes(field.key));
      }
    }
    if (!rope.find("rope_type") && !rope.find("type")) rope.at("rope_type", "\"default\"");
  }
  if (!theta || object.find("rope_theta")) {
    const double outer = object.number("rope_theta", least_rope_theta, most_rope_theta);
    if (theta && *theta != outer) {
      fail(ExitCode::unusable, "{}: rope_theta is {}, expected {} as in rope_parameters", object.where(),
           outer, *theta);
    }
    theta = outer;
  }
  if (const auto partial = object.find_set("partial_rotary_factor")) {
    double factor = 0;
    if (partial->get(factor) || factor != 1) object.reject("partial_rotary_factor", *partial, "1");
  }
  return *theta;
}

TokenId read_id(const JsonObject& object, simdjson::dom::element value, std::size_t vocab_size) {
  std::uint64_t id = 0;
  if (!(value.is_uint64() || value.is_int64()) || value.get(id) || id >= vocab_size) {
    object.reject("eos_token_id", value, fmt::format("token ids below vocab_size = {}", vocab_size));
  }
  return static_cast<TokenId>(id);
}

}  // namespace

std::size_t Config::parameters() const {
  const std::size_t attention = 2 * q_width() * hidden + 2 * kv_width() * hidden + 2 * head_dim;
  const std::size_t layer = attention + 3 * intermediate * hidden + 2 * hidden;
  return (tie_word_embeddings ? 1 : 2) * vocab_size * hidden + n_layers * layer + hidden;
}

Config parse_config(std::string_view json, const std::string& source) {
  const JsonDocument document = JsonDocument::parse(json, source);
  check_unique_keys(document);
  const JsonObject object(document.root(), source);

  expect_text(object, "model_type", "qwen3");
  check_architectures(object);
  expect_text(object, "hidden_act", "silu");
  if (const auto value = object.find_set("quantization_config")) {
    object.reject("quantization_config", *value, "none: quantised checkpoints are not implemented");
  }

  Config config;
  config.vocab_size = object.integer("vocab_size", 1, most_width);
  config.hidden = object.integer("hidden_size", 1, most_width);
  config.intermediate = object.integer("intermediate_size", 1, most_width);
  config.n_layers = object.integer("num_hidden_layers", 1, most_layers);
  config.n_q_heads = object.integer("num_attention_heads", 1, most_heads);
  config.n_kv_heads = object.integer("num_key_value_heads", 1, most_heads);
  config.head_dim = object.integer("head_dim", 2, most_heads);
  config.max_positions = object.integer("max_position_embeddings", 1, most_width);
  config.rms_norm_eps = object.number("rms_norm_eps", least_rms_norm_eps, most_rms_norm_eps);
  config.tie_word_embeddings = object.boolean("tie_word_embeddings");
  check_attention(object, config.n_layers);
  config.rope_theta = read_rope_theta(object);

  if (config.n_q_heads % config.n_kv_heads != 0) {
    fail(ExitCode::unusable, "{}: num_attention_heads is {}, expected a multiple of num_key_value_heads = {}",
         source, config.n_q_heads, config.n_kv_heads);
  }
  if (config.head_dim % 2 != 0) {
    fail(ExitCode::unusable, "{}: head_dim is {}, expected an even number (RoPE rotates pairs)", source,
         config.head_dim);
  }
  if (config.q_width() > most_width) {
    fail(ExitCode::unusable, "{}: num_attention_heads × head_dim is {}, expected at most {}", source,
         config.q_width(), most_width);
  }
  return config;
}

std::optional<GenerationConfig> parse_generation_config(std::string_view json, const std::string& source,
                                                        std::size_t vocab_size) {
  const JsonDocument document = JsonDocument::parse(json, source);
  check_unique_keys(document);
  const JsonObject object(document.root(), source);
  const auto value = object.find("eos_token_id");
  if (!value) return std::nullopt;

  GenerationConfig generation;
  simdjson::dom::array ids;
  if (value->is_null()) return generation;
  if (value->get(ids)) {
    generation.eos_ids.push_back(read_id(object, *value, vocab_size));
  } else {
    for (const simdjson::dom::element id : ids) generation.eos_ids.push_back(read_id(object, id, vocab_size));
  }
  return generation;
}

}  // namespace fs::model

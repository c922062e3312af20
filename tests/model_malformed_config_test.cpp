#include "model_malformed.h"

namespace fs::model {
namespace {

using testing::Case;
using testing::config;
using testing::expect_one_line_error;
using testing::replace;
using testing::ScratchDirectory;
using testing::SmallCheckpoint;
using testing::Spoil;

Spoil whole_config(std::string text) {
  return [=](SmallCheckpoint& files) { files.config = text; };
}
Spoil generation(const char* text) {
  return [=](SmallCheckpoint& files) { files.generation = text; };
}

TEST(Malformed, TheUnspoiledCheckpointLoads) {
  const ScratchDirectory directory;
  ThreadPool pool(1);
  EXPECT_EQ(Checkpoint::open(SmallCheckpoint().write_to(directory.path())).load(pool).layers.size(), 1U);
}

TEST(Malformed, Config) {
  const std::vector<Case> cases = {
      {"empty file", whole_config(""), {"config.json", "JSON"}},
      {"not JSON", whole_config("hidden_size = 6"), {"config.json", "JSON"}},
      {"cut off", whole_config(R"({"hidden_size": 6,)"), {"config.json", "JSON"}},
      {"an array", whole_config("[1, 2]"), {"config.json", "array of 2", "object"}},
      {"invalid UTF-8", whole_config("{\"model_type\": \"\xff\"}"), {"config.json", "JSON"}},
      {"nested without end", whole_config(std::string(100'000, '[')), {"config.json", "JSON"}},
      {"larger than any config",
       whole_config("{" + std::string(2 << 20, ' ') + "}"),
       {"config.json", "larger"}},
      {"key twice",
       config("\"head_dim\": 4", "\"head_dim\": 4, \"head_dim\": 8"),
       {"config.json", "head_dim", "twice"}},
      {"key twice, escaped",
       config("\"head_dim\": 4", "\"head_dim\": 4, \"head\\u005fdim\": 8"),
       {"head_dim", "twice"}},
      {"key twice, nested",
       config("\"use_cache\": true", R"("x": [{"a": 1, "a": 2}])"),
       {"config.json", "\"a\"", "twice"}},
      {"no vocab_size", config("\"vocab_size\"", "\"v\""), {"config.json", "vocab_size", "missing"}},
      {"no hidden_size", config("\"hidden_size\"", "\"v\""), {"hidden_size", "missing"}},
      {"no intermediate_size", config("\"intermediate_size\"", "\"v\""), {"intermediate_size", "missing"}},
      {"no num_hidden_layers", config("\"num_hidden_layers\"", "\"v\""), {"num_hidden_layers", "missing"}},
      {"no num_attention_heads",
       config("\"num_attention_heads\"", "\"v\""),
       {"num_attention_heads", "missing"}},
      {"no num_key_value_heads",
       config("\"num_key_value_heads\"", "\"v\""),
       {"num_key_value_heads", "missing"}},
      {"no head_dim", config("\"head_dim\"", "\"v\""), {"head_dim", "missing"}},
      {"no max_position_embeddings",
       config("\"max_position_embeddings\"", "\"v\""),
       {"max_position_embeddings", "missing"}},
      {"no rms_norm_eps", config("\"rms_norm_eps\"", "\"v\""), {"rms_norm_eps", "missing"}},
      {"no rope_theta", config("\"rope_theta\"", "\"v\""), {"rope_theta", "missing"}},
      {"no tie_word_embeddings",
       config("\"tie_word_embeddings\"", "\"v\""),
       {"tie_word_embeddings", "missing"}},
      {"no model_type", config("\"model_type\"", "\"v\""), {"model_type", "missing", "qwen3"}},
      {"no hidden_act", config("\"hidden_act\"", "\"v\""), {"hidden_act", "missing", "silu"}},
      {"no attention_bias", config("\"attention_bias\"", "\"v\""), {"attention_bias", "missing"}},
      {"no use_sliding_window", config("\"use_sliding_window\"", "\"v\""), {"use_sliding_window", "missing"}},
      {"null head_dim", config("\"head_dim\": 4", "\"head_dim\": null"), {"head_dim is null"}},
      {"another model", config("\"qwen3\"", "\"llama\""), {"model_type", "llama", "qwen3"}},
      {"another head",
       config("Qwen3ForCausalLM", "Qwen3ForSequenceClassification"),
       {"architectures", "Classification"}},
      {"no architecture", config("[\"Qwen3ForCausalLM\"]", "[]"), {"architectures", "array of 0"}},
      {"architecture no string", config("[\"Qwen3ForCausalLM\"]", "[3]"), {"architectures", "3"}},
      {"another activation", config("\"silu\"", "\"gelu\""), {"hidden_act", "gelu", "silu"}},
      {"attention bias",
       config("\"attention_bias\": false", "\"attention_bias\": true"),
       {"attention_bias", "true"}},
      {"sliding window",
       config("\"use_sliding_window\": false", "\"use_sliding_window\": true"),
       {"use_sliding_window"}},
      {"layer_types sliding",
       config("\"use_cache\": true", "\"layer_types\": [\"sliding_attention\"]"),
       {"layer_types[0]", "sliding_attention"}},
      {"layer_types too long",
       config("\"use_cache\": true", R"("layer_types": ["full_attention", "full_attention"])"),
       {"layer_types", "array of 2", "num_hidden_layers = 1"}},
      {"yarn",
       config("\"rope_scaling\": null", R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0})"),
       {"rope_scaling", "yarn", "default"}},
      {"linear, old spelling",
       config("\"rope_scaling\": null", R"("rope_scaling": {"type": "linear"})"),
       {"rope_scaling", "linear"}},
      {"default with a factor",
       config("\"rope_scaling\": null", R"("rope_scaling": {"type": "default", "factor": 2})"),
       {"rope_scaling", "factor"}},
      {"rope_scaling without type",
       config("\"rope_scaling\": null", R"("rope_scaling": {})"),
       {"rope_type", "missing"}},
      {"rope_scaling a string",
       config("\"rope_scaling\": null", R"("rope_scaling": "yarn")"),
       {"rope_scaling", "yarn"}},
      {"two thetas",
       config("\"rope_scaling\": null", R"("rope_parameters": {"rope_type": "default", "rope_theta": 7})"),
       {"rope_theta", "10000", "7"}},
      {"rotary part",
       config("\"use_cache\": true", "\"partial_rotary_factor\": 0.5"),
       {"partial_rotary_factor", "0.5"}},
      {"quantised",
       config("\"use_cache\": true", R"("quantization_config": {"quant_method": "gptq"})"),
       {"quantization_config"}},
      {"hidden_size 0", config("\"hidden_size\": 6", "\"hidden_size\": 0"), {"hidden_size is 0"}},
      {"hidden_size negative", config("\"hidden_size\": 6", "\"hidden_size\": -6"), {"hidden_size is -6"}},
      {"hidden_size fraction", config("\"hidden_size\": 6", "\"hidden_size\": 6.0"), {"hidden_size is 6.0"}},
      {"hidden_size string",
       config("\"hidden_size\": 6", "\"hidden_size\": \"6\""),
       {"hidden_size is \"6\""}},
      {"hidden_size 2^40",
       config("\"hidden_size\": 6", "\"hidden_size\": 1099511627776"),
       {"hidden_size is 1099511627776"}},
      {"hidden_size 2^64",
       config("\"hidden_size\": 6", "\"hidden_size\": 18446744073709551616"),
       {"config.json"}},
      {"a million layers",
       config("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1000000"),
       {"num_hidden_layers"}},
      {"all sizes at their limit",
       [](SmallCheckpoint& files) {
         replace(files.config, "\"hidden_size\": 6", "\"hidden_size\": 16777216");
         replace(files.config, "\"intermediate_size\": 5", "\"intermediate_size\": 16777216");
         replace(files.config, "\"vocab_size\": 8", "\"vocab_size\": 16777216");
         replace(files.config, "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1024");
       },
       {"model.safetensors", "[16777216, 16777216]"}},
      {"heads not divisible",
       config("\"num_key_value_heads\": 1", "\"num_key_value_heads\": 3"),
       {"num_attention_heads is 2", "num_key_value_heads = 3"}},
      {"odd head_dim", config("\"head_dim\": 4", "\"head_dim\": 5"), {"head_dim is 5", "even"}},
      {"heads too wide",
       [](SmallCheckpoint& files) {
         replace(files.config, "\"num_attention_heads\": 2", "\"num_attention_heads\": 65536");
         replace(files.config, "\"head_dim\": 4", "\"head_dim\": 65536");
       },
       {"num_attention_heads", "head_dim"}},
      {"eps 0", config("1e-06", "0"), {"rms_norm_eps is 0"}},
      {"eps negative", config("1e-06", "-1e-06"), {"rms_norm_eps is -1e-06"}},
      {"eps infinite", config("1e-06", "1e999"), {"config.json"}},
      {"eps no number", config("1e-06", "NaN"), {"config.json", "JSON"}},
      {"theta 0", config("\"rope_theta\": 10000", "\"rope_theta\": 0"), {"rope_theta is 0"}},
      {"theta string", config("\"rope_theta\": 10000", "\"rope_theta\": \"1e4\""), {"rope_theta is \"1e4\""}},
      {"tied maybe",
       config("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1"),
       {"tie_word_embeddings is 1"}},
  };
  for (const Case& item : cases) expect_one_line_error(item);
}

TEST(Malformed, GenerationConfig) {
  const std::vector<Case> cases = {
      {"empty", generation(""), {"generation_config.json", "JSON"}},
      {"not an object", generation("[]"), {"generation_config.json", "object"}},
      {"key twice",
       generation(R"({"eos_token_id": 2, "eos_token_id": 3})"),
       {"generation_config.json", "eos_token_id"}},
      {"id = vocab_size",
       generation(R"({"eos_token_id": 8})"),
       {"generation_config.json", "eos_token_id is 8"}},
      {"one bad id", generation(R"({"eos_token_id": [2, 4294967298]})"), {"eos_token_id is 4294967298", "8"}},
      {"negative id", generation(R"({"eos_token_id": -1})"), {"eos_token_id is -1"}},
      {"a piece", generation(R"({"eos_token_id": "<|im_end|>"})"), {"eos_token_id is \"<|im_end|>\""}},
      {"a fraction", generation(R"({"eos_token_id": [2.5]})"), {"eos_token_id is 2.5"}},
      {"nested lists", generation(R"({"eos_token_id": [[2]]})"), {"eos_token_id is an array"}},
      {"no end anywhere",
       [](SmallCheckpoint& files) {
         files.generation = "{}";
         replace(files.config, "\"eos_token_id\": 2,", "");
       },
       {"config.json", "eos_token_id"}},
  };
  for (const Case& item : cases) expect_one_line_error(item);
}

}  // namespace
}  // namespace fs::model

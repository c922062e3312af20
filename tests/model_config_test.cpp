#include <gtest/gtest.h>

#include "model/config.h"
#include "model/synthetic.h"
#include "model_fixtures.h"

namespace fs::model {
namespace {

using testing::replace;
using testing::small_config_json;

TEST(Config, ReadsEveryField) {
  const Config config = parse_config(small_config_json, "config.json");
  EXPECT_EQ(config.vocab_size, 8U);
  EXPECT_EQ(config.hidden, 6U);
  EXPECT_EQ(config.intermediate, 5U);
  EXPECT_EQ(config.n_layers, 1U);
  EXPECT_EQ(config.n_q_heads, 2U);
  EXPECT_EQ(config.n_kv_heads, 1U);
  EXPECT_EQ(config.head_dim, 4U);
  EXPECT_EQ(config.max_positions, 64U);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.q_width(), 8U);
  EXPECT_EQ(config.kv_width(), 4U);
  EXPECT_EQ(config.group(), 2U);
}

// Every legal way to say "plain full attention with unscaled RoPE".
TEST(Config, AcceptsEverySpellingOfTheSameMaths) {
  const struct {
    const char *from, *to;
  } variants[] = {
      {R"("sliding_window": null)", R"("sliding_window": 4096)"},
      {R"("sliding_window": null,)", ""},
      {R"("rope_scaling": null,)", ""},
      {R"("rope_scaling": null)", R"("rope_scaling": {"type": "default"})"},
      {R"("rope_scaling": null)", R"("rope_scaling": {"rope_type": "default"})"},
      {R"("rope_scaling": null, "rope_theta": 10000)",
       R"("rope_parameters": {"rope_type": "default", "rope_theta": 10000.0})"},
      {R"("rope_scaling": null)", R"("rope_parameters": {"rope_type": "default", "rope_theta": 1e4})"},
      {R"("rope_theta": 10000)", R"("rope_theta": 10000.0)"},
      {R"("max_window_layers": 1)", R"("max_window_layers": 0, "layer_types": ["full_attention"])"},
      {R"("architectures": ["Qwen3ForCausalLM"],)", ""},
      {R"("torch_dtype": "bfloat16")", R"("dtype": "float32", "partial_rotary_factor": 1.0)"},
      {R"("attention_dropout": 0.0,)", R"("attention_dropout": 0.5,)"},
  };
  for (const auto& variant : variants) {
    std::string json(small_config_json);
    replace(json, variant.from, variant.to);
    SCOPED_TRACE(json);
    EXPECT_EQ(parse_config(json, "config.json").rope_theta, 10000);
  }
}

TEST(Config, CountsParametersOfTheRealModel) {
  const Config config = synthetic_config("qwen3-0.6b");
  EXPECT_EQ(config.parameters(), 596'049'920U);
  // The real checkpoint stores lm_head although it is tied.
  EXPECT_EQ(config.parameters() + config.vocab_size * config.hidden, 751'632'384U);
}

TEST(Config, ReadsEosIds) {
  const auto ids = [](const char* json) {
    return parse_generation_config(json, "generation_config.json", 10)->eos_ids;
  };
  EXPECT_EQ(ids(R"({"eos_token_id": 3})"), std::vector<TokenId>{3});
  EXPECT_EQ(ids(R"({"eos_token_id": [9, 0]})"), (std::vector<TokenId>{9, 0}));
  EXPECT_EQ(ids(R"({"eos_token_id": null})"), std::vector<TokenId>{});
  EXPECT_FALSE(parse_generation_config(R"({"top_k": 20})", "generation_config.json", 10));
}

}  // namespace
}  // namespace fs::model

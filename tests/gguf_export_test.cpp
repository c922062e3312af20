// What export_gguf writes is what quantize() computes.
#include "model/gguf_export.h"

#include <gtest/gtest.h>

#include <set>

#include "gguf_fixtures.h"
#include "model/gguf_model.h"
#include "model/quantize.h"
#include "synthetic_model.h"

namespace fs::model {
namespace {

using namespace testing;

/// Rows of one and of three blocks; a table that is written in several pieces as F32.
Config small(bool tied) {
  return {.vocab_size = 70'001,
          .hidden = 32,
          .intermediate = 96,
          .n_layers = 2,
          .n_q_heads = 4,
          .n_kv_heads = 2,
          .head_dim = 8,
          .max_positions = 64,
          .rms_norm_eps = 1e-6,
          .rope_theta = 1e6,
          .tie_word_embeddings = tied};
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(GgufExport, HoldsWhatQuantizeComputes) {
  ThreadPool pool(2);
  for (const bool tied : {true, false}) {
    const Config config = small(tied);
    const Weights weights = fs::testing::synthetic_weights(config);
    for (const Dtype dtype : {Dtype::q8_0, Dtype::bf16, Dtype::f16, Dtype::f32}) {
      SCOPED_TRACE(name(dtype));
      const ScratchDirectory directory;
      std::size_t last = 0, most = 0;
      const auto progress = [&](std::string_view stage, std::uint64_t done, std::uint64_t total) {
        EXPECT_EQ(stage, "write");
        EXPECT_GT(done, last);
        last = done;
        most = total;
      };
      export_gguf(directory / "m.gguf", config, weights,
                  {.name = "small", .dtype = dtype, .vocabulary = nullptr, .existing = {}}, pool, progress);
      EXPECT_EQ(last, most);
      const auto model = GgufModel::open(directory / "m.gguf");
      EXPECT_EQ(model->config().tie_word_embeddings, tied);
      EXPECT_FALSE(model->vocabulary());
      EXPECT_EQ(model->dequantized_bytes(), 0U);
      const Weights got = GgufModel::load(model, pool, {});
      const auto written = list_tensors(config, got);
      const Weights converted = quantize(config, weights, dtype, pool);
      const auto want = list_tensors(config, converted);
      ASSERT_EQ(written.size(), expected_tensors(config).size());
      ASSERT_EQ(written.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(written[i].name, want[i].name);
        EXPECT_EQ(written[i].dtype, want[i].dtype) << want[i].name;
        EXPECT_EQ(written[i].shape, want[i].shape) << want[i].name;
        EXPECT_TRUE(text_of(written[i].bytes) == text_of(want[i].bytes)) << want[i].name;
      }
    }
  }
}

TEST(GgufExport, AnInterruptLeavesNothing) {
  ThreadPool pool(1);
  const Config config = small(true);
  const Weights weights = fs::testing::synthetic_weights(config);
  const ScratchDirectory directory;
  const auto interrupt = [](std::string_view, std::uint64_t done, std::uint64_t total) {
    if (done > total / 2) throw Error(ExitCode::interrupted, "interrupted");
  };
  EXPECT_THROW(export_gguf(directory / "m.gguf", config, weights,
                           {.name = "small", .dtype = Dtype::q8_0, .vocabulary = nullptr, .existing = {}},
                           pool, interrupt),
               Error);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(GgufExport, AValueThatTheFormatCannotHoldIsNamed) {
  ThreadPool pool(2);
  const Config config = small(true);
  Weights weights = fs::testing::synthetic_weights(config);
  std::vector<float> values(config.hidden * config.intermediate, 1);
  values[5 * config.intermediate + 90] = 1e6F;
  Matrix& down = weights.layers[1].down_proj;
  down = {Dtype::f32, down.rows, down.cols, std::as_bytes(std::span(values)).data()};
  const ScratchDirectory directory;
  try {
    export_gguf(directory / "m.gguf", config, weights,
                {.name = "small", .dtype = Dtype::f16, .vocabulary = nullptr, .existing = {}}, pool);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::unusable);
    EXPECT_NE(std::string_view(error.what()).find("model.layers.1.mlp.down_proj.weight"),
              std::string_view::npos);
    EXPECT_NE(std::string_view(error.what()).find("row 5"), std::string_view::npos) << error.what();
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(GgufExport, TakesWholeBlocksOnly) {
  Config config = small(true);
  EXPECT_NO_THROW(check_gguf_dtype(config, Dtype::q8_0));
  config.intermediate = 100;
  EXPECT_NO_THROW(check_gguf_dtype(config, Dtype::bf16));
  try {
    check_gguf_dtype(config, Dtype::q8_0);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string_view(error.what()).find("model.layers.0.mlp.down_proj.weight"),
              std::string_view::npos);
    EXPECT_NE(std::string_view(error.what()).find("100"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace fs::model

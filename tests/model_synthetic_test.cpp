#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "model/safetensors.h"
#include "model/synthetic.h"
#include "model_fixtures.h"

namespace fs::model {
namespace {

using testing::read_bytes;
using testing::ScratchDirectory;

// Computed in Python integers and numpy fp32 from the formula in synthetic.h, not by this code.
TEST(Synthetic, KnownAnswers) {
  const struct {
    std::uint64_t seed;
    const char* tensor;
    std::size_t cols, index;
    std::uint16_t bits;
  } known[] = {
      {0U, "model.embed_tokens.weight", 1024, 0, 0xBC53},
      {0U, "model.embed_tokens.weight", 1024, 155582463, 0x3D49},
      {7U, "lm_head.weight", 72, 24983, 0xBC57},
      {0U, "model.layers.27.mlp.down_proj.weight", 3072, 3145727, 0x3C69},
      {18446744073709551615U, "model.layers.1.mlp.gate_proj.weight", 72, 10871, 0x3DD5},
      {0U, "model.norm.weight", 72, 71, 0x3F83},
      {1U, "model.layers.2.self_attn.k_norm.weight", 20, 19, 0x3FE9},
      {0U, "model.layers.0.self_attn.v_proj.weight", 1024, 8589934597, 0xBD04},
      {0U, "model.layers.0.post_attention_layernorm.weight", 72, 3, 0x3F7E},
      {0U, "model.layers.0.self_attn.o_proj.weight", 120, 1, 0x3D12},
  };
  for (const auto& item : known) {
    std::uint16_t bits = 0;
    synthesize(item.seed, item.tensor, item.cols, item.index, {&bits, 1});
    EXPECT_EQ(bits, item.bits) << item.tensor << "[" << item.index << "]";
  }
}

TEST(Synthetic, APieceEqualsThatPartOfTheWhole) {
  std::vector<std::uint16_t> whole(1000);
  synthesize(3, "lm_head.weight", 10, 5, whole);
  for (const std::size_t first : {0UL, 1UL, 7UL, 64UL, 999UL}) {
    std::vector<std::uint16_t> piece(whole.size() - first);
    synthesize(3, "lm_head.weight", 10, 5 + first, piece);
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)))
        << first;
  }
}

TEST(Synthetic, ShapesAreThePublishedOnes) {
  EXPECT_EQ(synthetic_shapes(),
            (std::vector<std::string_view>{"qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "tiny-odd"}));
  EXPECT_EQ(synthetic_config("qwen3-1.7b").parameters(), 1'720'574'976U);
  EXPECT_EQ(synthetic_config("qwen3-4b").parameters(), 4'022'468'096U);
  EXPECT_FALSE(synthetic_config("tiny-odd").tie_word_embeddings);
}

TEST(Synthetic, UnknownShapeIsAUsageErrorThatNamesTheKnownOnes) {
  try {
    synthetic_config("qwen3-9b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::unusable);
    EXPECT_NE(std::string(error.what()).find("tiny-odd"), std::string::npos);
  }
}

void expect_equal(const Matrix& a, const Matrix& b) {
  ASSERT_EQ(a.rows, b.rows);
  ASSERT_EQ(a.cols, b.cols);
  ASSERT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(std::memcmp(a.data, b.data, a.rows * a.row_bytes()), 0);
}

TEST(Synthetic, IsTheSameInMemoryOnDiskAndOnAnyNumberOfThreads) {
  const ScratchDirectory directory;
  ThreadPool one(1), three(3);
  std::uint64_t reported = 0, total = 0;
  write_synthetic_checkpoint("tiny-odd", 42, directory / "odd", false, three,
                             [&](std::string_view stage, std::uint64_t done, std::uint64_t of) {
                               EXPECT_EQ(stage, "write");
                               EXPECT_GE(done, reported);
                               reported = done;
                               total = of;
                             });
  EXPECT_EQ(reported, total);
  EXPECT_EQ(total, synthetic_config("tiny-odd").parameters() * 2);

  const Checkpoint stored = Checkpoint::open(locate((directory / "odd").string()));
  const Checkpoint made = Checkpoint::open(locate("synthetic:tiny-odd@42"));
  EXPECT_EQ(stored.config().rope_theta, made.config().rope_theta);
  EXPECT_EQ(stored.config().rms_norm_eps, made.config().rms_norm_eps);
  EXPECT_EQ(stored.config().max_positions, made.config().max_positions);
  EXPECT_TRUE(stored.generation().eos_ids.empty());
  const Weights a = stored.load(one), b = made.load(three);
  expect_equal(a.embed_tokens, b.embed_tokens);
  expect_equal(a.lm_head, b.lm_head);
  EXPECT_EQ(a.final_norm, b.final_norm);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t layer = 0; layer < a.layers.size(); ++layer) {
    const LayerWeights &x = a.layers[layer], &y = b.layers[layer];
    EXPECT_EQ(x.input_norm, y.input_norm);
    EXPECT_EQ(x.q_norm, y.q_norm);
    EXPECT_EQ(x.k_norm, y.k_norm);
    EXPECT_EQ(x.post_attention_norm, y.post_attention_norm);
    for (const auto field :
         {&LayerWeights::q_proj, &LayerWeights::k_proj, &LayerWeights::v_proj, &LayerWeights::o_proj,
          &LayerWeights::gate_proj, &LayerWeights::up_proj, &LayerWeights::down_proj}) {
      expect_equal(x.*field, y.*field);
    }
  }
  EXPECT_EQ(stored.tensors().size(), made.tensors().size());
}

TEST(Synthetic, DoesNotReplaceFilesUnlessForced) {
  const ScratchDirectory directory;
  ThreadPool pool(1);
  testing::write_bytes(directory / "generation_config.json", "mine");
  EXPECT_THROW(write_synthetic_checkpoint("tiny-odd", 0, directory.path(), false, pool), Error);
  EXPECT_EQ(read_bytes(directory / "generation_config.json"), "mine");
  EXPECT_FALSE(std::filesystem::exists(directory / "model.safetensors"));
  write_synthetic_checkpoint("tiny-odd", 0, directory.path(), true, pool);
  EXPECT_NE(read_bytes(directory / "generation_config.json"), "mine");
}

TEST(Synthetic, AnInterruptedWriteLeavesNoWeightsAndNoConfig) {
  const ScratchDirectory directory;
  ThreadPool pool(1);
  const auto interrupt = [](std::string_view, std::uint64_t done, std::uint64_t) {
    if (done > 100'000) throw Error(ExitCode::interrupted, "interrupted");
  };
  EXPECT_THROW(write_synthetic_checkpoint("tiny-odd", 0, directory.path(), false, pool, interrupt), Error);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace fs::model

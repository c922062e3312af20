#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "model_fixtures.h"

namespace fs::model {
namespace {

using testing::replace;
using testing::ScratchDirectory;
using testing::SmallCheckpoint;
using testing::write_bytes;

constexpr std::string_view untied[] = {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"};

/// Appends lm_head.weight [8, 6] with these bytes.
void add_head(SmallCheckpoint& files, std::string_view bytes) {
  const std::size_t begin = files.data.size();
  files.header.pop_back();
  files.header +=
      fmt::format(R"(,"lm_head.weight":{{"dtype":"BF16","shape":[8,6],"data_offsets":[{},{}]}}}})", begin,
                  begin + bytes.size());
  files.data += bytes;
}

Checkpoint open(const SmallCheckpoint& files, const ScratchDirectory& directory) {
  return Checkpoint::open(files.write_to(directory.path()));
}

TEST(Checkpoint, FillsEveryFieldFromTheTensorOfItsName) {
  const ScratchDirectory directory;
  const SmallCheckpoint files;
  const Checkpoint checkpoint = open(files, directory);
  ThreadPool pool(1);
  const Weights weights = checkpoint.load(pool);
  const auto table = checkpoint.tensors();
  EXPECT_EQ(table.size(), 13U);
  ASSERT_EQ(weights.layers.size(), 1U);

  // Where a tensor lies in the file, by the table of an independent reading: order and sizes as written.
  std::map<std::string, std::pair<std::size_t, std::size_t>> place;
  std::size_t at = 0;
  for (const TensorInfo& tensor : table) {
    EXPECT_EQ(tensor.dtype, "BF16");
    EXPECT_EQ(tensor.file, directory / "model.safetensors");
    place[tensor.name] = {at, tensor.bytes};
    at += tensor.bytes;
  }
  EXPECT_EQ(at, files.data.size());

  const auto expect_matrix = [&](const Matrix& matrix, const std::string& name, std::size_t rows,
                                 std::size_t cols) {
    const auto [begin, size] = place.at(name);
    EXPECT_EQ(matrix.rows, rows) << name;
    EXPECT_EQ(matrix.cols, cols) << name;
    ASSERT_EQ(size, rows * cols * 2) << name;
    EXPECT_EQ(std::memcmp(matrix.data, files.data.data() + begin, size), 0) << name;
  };
  const auto expect_vector = [&](const Vector& vector, const std::string& name, std::size_t cols) {
    const auto [begin, size] = place.at(name);
    Vector want(cols);
    ASSERT_EQ(size, cols * 2) << name;
    decode(Dtype::bf16, reinterpret_cast<const std::byte*>(files.data.data()) + begin, want);
    EXPECT_EQ(vector, want) << name;
  };
  const LayerWeights& layer = weights.layers[0];
  const std::string in = "model.layers.0.";
  expect_matrix(weights.embed_tokens, "model.embed_tokens.weight", 8, 6);
  expect_vector(layer.input_norm, in + "input_layernorm.weight", 6);
  expect_matrix(layer.q_proj, in + "self_attn.q_proj.weight", 8, 6);
  expect_matrix(layer.k_proj, in + "self_attn.k_proj.weight", 4, 6);
  expect_matrix(layer.v_proj, in + "self_attn.v_proj.weight", 4, 6);
  expect_vector(layer.q_norm, in + "self_attn.q_norm.weight", 4);
  expect_vector(layer.k_norm, in + "self_attn.k_norm.weight", 4);
  expect_matrix(layer.o_proj, in + "self_attn.o_proj.weight", 6, 8);
  expect_vector(layer.post_attention_norm, in + "post_attention_layernorm.weight", 6);
  expect_matrix(layer.gate_proj, in + "mlp.gate_proj.weight", 5, 6);
  expect_matrix(layer.up_proj, in + "mlp.up_proj.weight", 5, 6);
  expect_matrix(layer.down_proj, in + "mlp.down_proj.weight", 6, 5);
  expect_vector(weights.final_norm, "model.norm.weight", 6);
}

TEST(Checkpoint, TiedEmbeddingsAreOneTableAndAStoredHeadIsIgnored) {
  ThreadPool pool(1);
  {
    const ScratchDirectory directory;
    const Checkpoint checkpoint = open(SmallCheckpoint(), directory);
    const Weights weights = checkpoint.load(pool);
    EXPECT_EQ(weights.lm_head.data, weights.embed_tokens.data);
    EXPECT_EQ(checkpoint.redundant_head_equals_embedding(), std::nullopt);
  }
  for (const bool same : {true, false}) {
    const ScratchDirectory directory;
    SmallCheckpoint files;
    std::string head = files.data.substr(0, 96);
    if (!same) head.back() ^= 1;
    add_head(files, head);
    const Checkpoint checkpoint = open(files, directory);
    const Weights weights = checkpoint.load(pool);
    EXPECT_EQ(weights.lm_head.data, weights.embed_tokens.data);
    EXPECT_EQ(checkpoint.redundant_head_equals_embedding(), same);
    EXPECT_EQ(checkpoint.tensors().size(), 14U);
  }
}

TEST(Checkpoint, UntiedHeadIsItsOwnTable) {
  const ScratchDirectory directory;
  SmallCheckpoint files;
  replace(files.config, untied[0], untied[1]);
  const std::string head(96, 'h');
  add_head(files, head);
  ThreadPool pool(1);
  const Checkpoint checkpoint = open(files, directory);
  const Weights weights = checkpoint.load(pool);
  EXPECT_EQ(std::memcmp(weights.lm_head.data, head.data(), head.size()), 0);
  EXPECT_EQ(checkpoint.redundant_head_equals_embedding(), std::nullopt);
}

TEST(Checkpoint, WeightsOutliveTheCheckpoint) {
  const ScratchDirectory directory;
  ThreadPool pool(1);
  const Weights weights = open(SmallCheckpoint(), directory).load(pool);
  std::filesystem::remove_all(directory.path());
  std::vector<float> row(6);
  weights.embed_tokens.row(7, row);
  EXPECT_NE(row[0], 0);
}

TEST(Checkpoint, EosIdsComeFromGenerationConfigElseConfig) {
  const auto eos = [](const SmallCheckpoint& files) {
    const ScratchDirectory directory;
    return open(files, directory).generation().eos_ids;
  };
  SmallCheckpoint files;
  EXPECT_EQ(eos(files), (std::vector<TokenId>{2, 3}));
  files.generation = "{\"temperature\": 0.6}";
  EXPECT_EQ(eos(files), std::vector<TokenId>{2});
  files.generation = "{\"eos_token_id\": null}";
  EXPECT_EQ(eos(files), std::vector<TokenId>{});

  const ScratchDirectory directory;
  const Location location = files.write_to(directory.path());
  std::filesystem::remove(directory / "generation_config.json");
  EXPECT_EQ(Checkpoint::open(location).generation().eos_ids, std::vector<TokenId>{2});
}

TEST(Checkpoint, OneFileHasItsConfigAndTokenizerBesideIt) {
  const ScratchDirectory directory;
  SmallCheckpoint().write_to(directory.path());
  Location location = locate((directory / "model.safetensors").string());
  EXPECT_FALSE(Checkpoint::open(location).tokenizer_file());
  write_bytes(directory / "tokenizer.json", "{}");
  const Checkpoint checkpoint = Checkpoint::open(location);
  EXPECT_EQ(checkpoint.tokenizer_file(), directory / "tokenizer.json");
  EXPECT_EQ(checkpoint.tensors().size(), 13U);
}

TEST(Checkpoint, SyntheticModelHasATableWithoutBeingGenerated) {
  const Checkpoint checkpoint = Checkpoint::open(locate("synthetic:qwen3-4b"));
  std::size_t bytes = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) bytes += tensor.bytes;
  EXPECT_EQ(bytes, checkpoint.config().parameters() * 2);
  EXPECT_FALSE(checkpoint.tokenizer_file());
}

TEST(Checkpoint, ProgressMayInterruptGeneration) {
  ThreadPool pool(2);
  const auto interrupt = [](std::string_view stage, std::uint64_t, std::uint64_t) {
    EXPECT_EQ(stage, "synthesize");
    throw Error(ExitCode::interrupted, "interrupted");
  };
  EXPECT_THROW(Checkpoint::open(locate("synthetic:qwen3-4b")).load(pool, interrupt), Error);
}

}  // namespace
}  // namespace fs::model

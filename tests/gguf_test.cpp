#include <gtest/gtest.h>

#include "base/json.h"
#include "gguf_fixtures.h"
#include "model/checkpoint.h"
#include "model/gguf_config.h"
#include "model/gguf_writer.h"

namespace fs::model {
namespace {

using namespace testing;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The bytes of a tensor as the fixture has them.
std::string_view stored(const SmallGguf& gguf, std::string_view name, std::size_t size) {
  for (const auto& slot : gguf.slots) {
    if (slot.name == name) return std::string_view(gguf.data).substr(slot.offset, size);
  }
  throw std::runtime_error("no such tensor");
}

std::shared_ptr<const GgufModel> open(const SmallGguf& gguf, const ScratchDirectory& directory) {
  write_bytes(directory / "m.gguf", gguf.bytes());
  return GgufModel::open(directory / "m.gguf");
}

Weights load(const std::shared_ptr<const GgufModel>& model) {
  ThreadPool pool(2);
  return GgufModel::load(model, pool, {});
}

void expect_config(const Config& got, const Config& want) {
  EXPECT_EQ(got.vocab_size, want.vocab_size);
  EXPECT_EQ(got.hidden, want.hidden);
  EXPECT_EQ(got.intermediate, want.intermediate);
  EXPECT_EQ(got.n_layers, want.n_layers);
  EXPECT_EQ(got.n_q_heads, want.n_q_heads);
  EXPECT_EQ(got.n_kv_heads, want.n_kv_heads);
  EXPECT_EQ(got.head_dim, want.head_dim);
  EXPECT_EQ(got.max_positions, want.max_positions);
  EXPECT_EQ(got.rms_norm_eps, want.rms_norm_eps);  // as decimals: 1e-6, not the double next to fp32's
  EXPECT_EQ(got.rope_theta, want.rope_theta);
  EXPECT_EQ(got.tie_word_embeddings, want.tie_word_embeddings);
}

TEST(Gguf, ReadsConfigurationAndVocabularyOfBothVersions) {
  for (const std::uint32_t version : {2U, 3U}) {
    const ScratchDirectory directory;
    SmallGguf gguf;
    gguf.version = version;
    const auto model = open(gguf, directory);
    EXPECT_EQ(model->file().version, version);
    EXPECT_EQ(model->dequantized_bytes(), 0U);
    expect_config(model->config(), SmallGguf::config());
    ASSERT_TRUE(model->vocabulary());
    EXPECT_TRUE(std::ranges::equal(model->vocabulary()->tokens, gguf.tokens));
    EXPECT_TRUE(std::ranges::equal(model->vocabulary()->merges, gguf.merges));
    EXPECT_EQ(model->vocabulary()->used(), 261U);
    EXPECT_EQ(model->vocabulary()->eos, TokenId{259});
    EXPECT_FALSE(model->vocabulary()->bos);
    EXPECT_FALSE(model->vocabulary()->chat_template);
    EXPECT_EQ(end_tokens(*model->vocabulary()), (std::vector<TokenId>{258, 259}));
  }
}

TEST(Gguf, UsesMatricesWhereTheyLieAndDecodesNorms) {
  for (const auto& [type, dtype] : {std::pair(0U, Dtype::f32), std::pair(1U, Dtype::f16),
                                    std::pair(30U, Dtype::bf16), std::pair(8U, Dtype::q8_0)}) {
    SCOPED_TRACE(name(dtype));
    const ScratchDirectory directory;
    const SmallGguf gguf(type, block_elements(dtype), block_bytes(dtype));
    const auto model = open(gguf, directory);
    EXPECT_EQ(model->dequantized_bytes(), 0U);
    const Weights weights = load(model);
    const LayerWeights& layer = weights.layers.at(0);
    const auto expect_matrix = [&, dtype = dtype](const Matrix& matrix, std::string_view name,
                                                  std::size_t rows, std::size_t cols) {
      SCOPED_TRACE(name);
      EXPECT_EQ(matrix.dtype, dtype);
      EXPECT_EQ(matrix.rows, rows);
      EXPECT_EQ(matrix.cols, cols);
      const auto& tensors = model->file().tensors;
      const auto tensor = std::ranges::find(tensors, name, &GgufTensor::name);
      ASSERT_NE(tensor, tensors.end());
      EXPECT_EQ(matrix.data, tensor->bytes.data());  // no copy
      const std::size_t bytes = rows * row_bytes(dtype, cols);
      EXPECT_EQ(text_of({matrix.data, bytes}), stored(gguf, name, bytes));
    };
    expect_matrix(weights.embed_tokens, "token_embd.weight", 264, 32);
    expect_matrix(layer.q_proj, "blk.0.attn_q.weight", 32, 32);
    expect_matrix(layer.k_proj, "blk.0.attn_k.weight", 16, 32);
    expect_matrix(layer.v_proj, "blk.0.attn_v.weight", 16, 32);
    expect_matrix(layer.o_proj, "blk.0.attn_output.weight", 32, 32);
    expect_matrix(layer.gate_proj, "blk.0.ffn_gate.weight", 64, 32);
    expect_matrix(layer.up_proj, "blk.0.ffn_up.weight", 64, 32);
    expect_matrix(layer.down_proj, "blk.0.ffn_down.weight", 32, 64);
    EXPECT_EQ(weights.lm_head.data, weights.embed_tokens.data);
    const auto expect_vector = [&](const Vector& vector, std::string_view name, std::size_t size) {
      EXPECT_EQ(text_of(std::as_bytes(std::span(vector))), stored(gguf, name, size * 4)) << name;
    };
    expect_vector(layer.input_norm, "blk.0.attn_norm.weight", 32);
    expect_vector(layer.q_norm, "blk.0.attn_q_norm.weight", 16);
    expect_vector(layer.k_norm, "blk.0.attn_k_norm.weight", 16);
    expect_vector(layer.post_attention_norm, "blk.0.ffn_norm.weight", 32);
    expect_vector(weights.final_norm, "output_norm.weight", 32);
  }
}

TEST(Gguf, OutputWeightIsAHeadOfItsOwn) {
  const ScratchDirectory directory;
  SmallGguf gguf;
  gguf.slots.push_back({"output.weight", {32, 264}, 30, gguf.data.size()});
  gguf.data += std::string(264 * 32 * 2, '\x07');
  const auto model = open(gguf, directory);
  EXPECT_FALSE(model->config().tie_word_embeddings);
  const Weights weights = load(model);
  EXPECT_NE(weights.lm_head.data, weights.embed_tokens.data);
  EXPECT_EQ(std::to_integer<int>(weights.lm_head.data[5]), 7);
}

TEST(Gguf, DequantisesToFp32AtLoad) {
  for (const auto& [type, bytes] : {std::pair(2U, 18U), std::pair(3U, 20U)}) {
    const ScratchDirectory directory;
    const SmallGguf gguf(type, 32, bytes);
    const auto model = open(gguf, directory);
    EXPECT_EQ(model->dequantized_bytes(), (264 * 32 + 3 * 32 * 32 + 3 * 64 * 32) * sizeof(float));
    const Weights weights = load(model);
    EXPECT_EQ(weights.layers[0].down_proj.dtype, Dtype::f32);
    for (const GgufTensor& tensor : model->file().tensors) {
      if (tensor.name != "blk.0.ffn_down.weight") continue;
      std::vector<float> want(64 * 32), got(64 * 32);
      dequantize(tensor.type, tensor.bytes.data(), want);
      decode(Dtype::f32, weights.layers[0].down_proj.data, got);
      EXPECT_EQ(got, want);
      EXPECT_NE(want.front(), want.back());
    }
  }
}

std::vector<std::byte> from_hexadecimal(std::string_view digits) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

TEST(Gguf, DequantisesEveryTypeAsTheOracle) {
  const JsonDocument golden = JsonDocument::load(FS_SOURCE_DIR "/golden/gguf_blocks.json", 1 << 20);
  std::size_t n_types = 0;
  for (const auto item : golden.root()["dequantize"].get_object()) {
    SCOPED_TRACE(item.key);
    const GgmlLayout* size = nullptr;
    for (std::uint32_t type = 0; type < 64; ++type) {
      if (ggml_type_name(type) == item.key) size = find_layout(type);
    }
    ASSERT_NE(size, nullptr);
    EXPECT_EQ(size->name, item.key);
    EXPECT_EQ(size->block_elements, item.value["block_elements"].get_uint64().value());
    EXPECT_EQ(size->block_bytes, item.value["block_bytes"].get_uint64().value());
    const auto blocks = from_hexadecimal(item.value["blocks"]),
               values = from_hexadecimal(item.value["values"]);
    std::vector<float> got(values.size() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    ASSERT_EQ(got.size() / size->block_elements * size->block_bytes, blocks.size());
    dequantize(size->type, blocks.data(), got);
    EXPECT_EQ(text_of(std::as_bytes(std::span(got))), text_of(values)) << "bit for bit";
    ++n_types;
  }
  EXPECT_EQ(n_types, 6U);
}

TEST(Gguf, NamesEveryTensorOnce) {
  Config config = SmallGguf::config();
  config.tie_word_embeddings = false;
  config.n_layers = 12;
  std::set<std::string> names;
  for (const TensorShape& tensor : expected_tensors(config)) names.insert(gguf_tensor_name(tensor.name));
  EXPECT_EQ(names.size(), 3U + 12 * 11);
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "output.weight", "blk.11.attn_norm.weight",
        "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_q_norm.weight",
        "blk.0.attn_k_norm.weight", "blk.10.attn_output.weight", "blk.0.ffn_norm.weight",
        "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

/// Writes what a file says, with the writer under test.
std::string rewritten(const GgufModel& model, const ScratchDirectory& directory) {
  GgufPairs pairs;
  add_config(pairs, model.config(), "small", GgmlType::bf16);
  add_vocabulary(pairs, model.vocabulary() ? &*model.vocabulary() : nullptr);
  std::vector<GgufSlot> slots;
  for (const GgufTensor& tensor : model.file().tensors) {
    slots.push_back({std::string(tensor.name), tensor.type, tensor.shape});
  }
  write_gguf(directory / "again.gguf", pairs, slots, [&](std::size_t i, const ByteSink& sink) {
    const auto bytes = model.file().tensors[i].bytes;
    sink(bytes.first(bytes.size() / 2));
    sink(bytes.subspan(bytes.size() / 2));
  });
  return read_bytes(directory / "again.gguf");
}

TEST(Gguf, WritesWhatItReads) {
  const ScratchDirectory directory;
  SmallGguf gguf(2, 32, 18);  // rows of blocks, tensors that need padding
  gguf.pairs.emplace_back("tokenizer.chat_template", text_value("{{ messages }}"));
  gguf.pairs.emplace_back("tokenizer.ggml.padding_token_id", u32_value(258));
  gguf.pairs.emplace_back("tokenizer.ggml.bos_token_id", u32_value(0));
  const auto model = open(gguf, directory);
  const std::string bytes = rewritten(*model, directory);
  const auto again = GgufModel::open(directory / "again.gguf");
  expect_config(again->config(), SmallGguf::config());
  ASSERT_TRUE(again->vocabulary());
  EXPECT_EQ(again->vocabulary()->tokens, model->vocabulary()->tokens);
  EXPECT_EQ(again->vocabulary()->types, model->vocabulary()->types);
  EXPECT_EQ(again->vocabulary()->merges, model->vocabulary()->merges);
  EXPECT_EQ(again->vocabulary()->eos, TokenId{259});
  EXPECT_EQ(again->vocabulary()->padding, TokenId{258});
  EXPECT_EQ(again->vocabulary()->bos, TokenId{0});
  EXPECT_EQ(again->vocabulary()->chat_template, "{{ messages }}");
  ASSERT_EQ(again->file().tensors.size(), model->file().tensors.size());
  for (std::size_t i = 0; i < again->file().tensors.size(); ++i) {
    const GgufTensor &a = again->file().tensors[i], &b = model->file().tensors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.type, b.type);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(text_of(a.bytes), text_of(b.bytes));
  }
  EXPECT_EQ(rewritten(*again, directory), bytes) << "the same bytes for the same model";
}

TEST(Gguf, WritesAModelWithoutVocabulary) {
  const ScratchDirectory directory;
  SmallGguf gguf;
  std::erase_if(gguf.pairs, [](const auto& pair) { return pair.first.starts_with("tokenizer."); });
  gguf.pairs.emplace_back("tokenizer.ggml.model", text_value("none"));
  const auto model = open(gguf, directory);
  EXPECT_FALSE(model->vocabulary());
  rewritten(*model, directory);
  const auto again = GgufModel::open(directory / "again.gguf");
  EXPECT_FALSE(again->vocabulary());
  EXPECT_EQ(again->file().metadata.text("tokenizer.ggml.model"), "no_vocab");  // llama.cpp's name of it
  EXPECT_EQ(again->file().metadata.integer("qwen3.vocab_size", 0, 1000), 264U);
}

TEST(Gguf, WriterRefusesWrongSizesAndLeavesNothing) {
  const ScratchDirectory directory;
  const GgufSlot slot{"x", GgmlType::q8_0, {2, 32}};
  const std::vector<std::byte> bytes(69);
  for (const std::size_t size : {67U, 69U}) {
    EXPECT_THROW(write_gguf(directory / "x.gguf", {}, std::span(&slot, 1),
                            [&](std::size_t, const ByteSink& sink) { sink(std::span(bytes).first(size)); }),
                 Error);
  }
  const GgufSlot no_blocks{"x", GgmlType::q8_0, {2, 33}};
  EXPECT_THROW(write_gguf(directory / "x.gguf", {}, std::span(&no_blocks, 1), {}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace fs::model

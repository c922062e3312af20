// A tokenizer that went through a GGUF file is the one of tokenizer.json, id for id.
#include "cli/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/written_vocabulary.h"
#include "gguf_fixtures.h"
#include "model/gguf_config.h"
#include "text/utf8.h"

namespace fs::cli {
namespace {

using model::testing::replace;
using model::testing::ScratchDirectory;
using model::testing::SmallCheckpoint;
using model::testing::write_bytes;
using std::filesystem::path;

const path golden = path(FS_SOURCE_DIR) / "golden";

/// A checkpoint directory of this tokenizer and vocabulary: its weights are not looked at.
model::Checkpoint checkpoint_with(const path& tokenizer, std::size_t vocab_size, const path& directory) {
  SmallCheckpoint files;
  replace(files.config, "\"vocab_size\": 8", fmt::format("\"vocab_size\": {}", vocab_size));
  files.write_to(directory);
  std::filesystem::copy_file(tokenizer, directory / "tokenizer.json");
  const path config = tokenizer.parent_path() / "tokenizer_config.json";
  if (std::filesystem::exists(config)) {
    std::filesystem::copy_file(config, directory / "tokenizer_config.json");
  }
  return model::Checkpoint::open(
      {.spec = directory.string(), .path = directory, .synthetic = {}, .seed = 0, .notice = {}});
}

/// The metadata of a GGUF file with this vocabulary, read back from its bytes.
struct RoundTrip {
  ScratchDirectory directory;
  std::string bytes;
  std::optional<model::GgufVocabulary> vocabulary;

  RoundTrip(const path& tokenizer, std::size_t vocab_size) {
    const model::Checkpoint checkpoint = checkpoint_with(tokenizer, vocab_size, directory / "checkpoint");
    const WrittenVocabulary written(checkpoint);
    model::GgufPairs pairs;
    add_vocabulary(pairs, written.get());
    write_gguf(directory / "v.gguf", pairs, {}, {});
    bytes = read_file(directory / "v.gguf");
    const auto file = model::parse_gguf(std::as_bytes(std::span(bytes)), "v.gguf");
    vocabulary = model::parse_gguf_vocabulary(file.metadata, vocab_size);
  }
};

void expect_same(const path& tokenizer_file, std::size_t vocab_size, const char* cases_file) {
  const RoundTrip trip(tokenizer_file, vocab_size);
  ASSERT_TRUE(trip.vocabulary);
  const text::Tokenizer want = text::Tokenizer::load(tokenizer_file);
  const text::Tokenizer got = gguf_tokenizer(*trip.vocabulary, "v.gguf");
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(trip.vocabulary->used(), want.size());
  EXPECT_EQ(trip.vocabulary->tokens.size(), vocab_size);
  for (TokenId id = 0; id < want.size(); ++id) {
    ASSERT_EQ(got.bytes(id), want.bytes(id)) << id;
    const std::string content(want.bytes(id));
    ASSERT_EQ(got.added_token(content), want.added_token(content)) << id;
    if (want.is_special(id)) {
      ASSERT_TRUE(got.is_special(id)) << id;
    }
  }
  const JsonDocument cases = JsonDocument::load(golden / "tokenizer" / cases_file, 1 << 20);
  std::size_t n_cases = 0;
  for (const auto item : cases.root()["encode"].get_array()) {
    const std::string_view text = item["text"];
    std::vector<TokenId> ids;
    for (const auto id : item["ids"].get_array()) ids.push_back(static_cast<TokenId>(id.get_uint64()));
    EXPECT_EQ(got.encode(text), ids) << text::quote(text);
    EXPECT_EQ(got.encode(text, text::AddedTokens::as_text), want.encode(text, text::AddedTokens::as_text));
    ++n_cases;
  }
  EXPECT_GE(n_cases, 400U);
}

TEST(GgufTokenizer, IsTheBundledOne) {
  expect_same(golden / "tiny/tokenizer.json", 2176, "tiny_cases.json");
  const RoundTrip trip(golden / "tiny/tokenizer.json", 2176);
  EXPECT_EQ(trip.vocabulary->eos, TokenId{2050});      // <|im_end|>, by tokenizer_config.json
  EXPECT_EQ(trip.vocabulary->padding, TokenId{2048});  // <|endoftext|>
  EXPECT_EQ(trip.vocabulary->bos, TokenId{1});         // by config.json, as tokenizer_config.json has null
  EXPECT_EQ(end_tokens(*trip.vocabulary), (std::vector<TokenId>{2048, 2050}));
  ASSERT_TRUE(trip.vocabulary->chat_template);
  EXPECT_NE(trip.vocabulary->chat_template->find("<|im_start|>"), std::string_view::npos);
  EXPECT_EQ(trip.vocabulary->types[2047], model::GgufTokenType::normal);
  EXPECT_EQ(trip.vocabulary->types[2049], model::GgufTokenType::control);
  EXPECT_EQ(trip.vocabulary->types[2062], model::GgufTokenType::user_defined);  // <tool_call>
  EXPECT_EQ(trip.vocabulary->types[2064],
            model::GgufTokenType::control);  // <|fim_prefix|>, as llama.cpp has it
  EXPECT_EQ(trip.vocabulary->types[2074], model::GgufTokenType::unused);
  EXPECT_EQ(trip.vocabulary->tokens[2074], "[PAD2074]");
}

TEST(GgufTokenizer, IsQwen3s) {
  const char* const named = std::getenv("FS_QWEN3_TOKENIZER");
  const path file = named != nullptr
                        ? path(named)
                        : path(FS_SOURCE_DIR) / "../shared/assets/qwen3-tokenizer/tokenizer.json";
  if (!std::filesystem::exists(file)) {
    GTEST_SKIP() << "Qwen3's tokenizer.json is not here: it was not taken through GGUF "
                    "(FS_QWEN3_TOKENIZER=FILE names it)";
  }
  expect_same(file, 151936, "qwen3_cases.json");
}

TEST(GgufTokenizer, WhatGgufCannotSayIsRefused) {
  const auto message = [](const char* from, const char* to) -> std::string {
    const ScratchDirectory directory;
    std::string json = read_file(golden / "tiny/tokenizer.json");
    replace(json, from, to);
    write_bytes(directory / "t/tokenizer.json", json);
    try {
      const WrittenVocabulary written(
          checkpoint_with(directory / "t/tokenizer.json", 2176, directory / "checkpoint"));
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::unusable);
      return error.what();
    }
  };
  EXPECT_NE(message("\"lstrip\": false", "\"lstrip\": true").find("added_tokens[0]"), std::string::npos);
  EXPECT_NE(message("{\n    \"type\": \"NFC\"\n  }", "null").find("NFC"), std::string::npos);
}

TEST(GgufTokenizer, AUsedTokenMayFollowAnUnusedOne) {
  model::testing::SmallGguf gguf;
  gguf.types[256] = 5;
  const std::string bytes = gguf.bytes();
  const auto model = model::GgufModel::parse(std::as_bytes(std::span(bytes)), "m.gguf");
  EXPECT_EQ(gguf_tokenizer(*model->vocabulary(), "m.gguf").size(), 261U);
}

}  // namespace
}  // namespace fs::cli

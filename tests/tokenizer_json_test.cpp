#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "text/byte_level.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"

namespace fs::text {
namespace {

using nlohmann::json;

std::string utf8(std::uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0u | c >> 6), static_cast<char>(0x80u | (c & 0x3Fu))};
}

/// A small tokenizer.json with nothing wrong: a token a byte, "ab", "abc", and two added tokens.
json sound() {
  json vocab = json::object();
  for (std::size_t byte = 0; byte < 256; ++byte) vocab[utf8(byte_level_characters()[byte])] = byte;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", qwen2_pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const auto added = [](int id, const char* content) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {added(258, "<|im_start|>"), added(259, "<|im_end|>")}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
          {"post_processor", byte_level},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", ""},
            {"end_of_word_suffix", ""},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", json::array({json::array({"a", "b"}), json::array({"ab", "c"})})}}}};
}

const std::vector<TokenId> abc_end = {257, 259};

TEST(TokenizerJson, ASoundFileLoads) {
  const Tokenizer tokenizer = Tokenizer::parse(sound().dump(), "sound.json");
  EXPECT_EQ(tokenizer.size(), 260u);
  EXPECT_EQ(tokenizer.encode("abc<|im_end|>"), abc_end);
}

TEST(TokenizerJson, MergesMayBeStrings) {
  json file = sound();
  file["model"]["merges"] = json::array({"a b", "ab c"});
  EXPECT_EQ(Tokenizer::parse(file.dump(), "strings.json").encode("abc<|im_end|>"), abc_end);
}

TEST(TokenizerJson, KeysThatMeanNothingMayBeAbsent) {
  json file = sound();
  for (const char* key : {"truncation", "padding", "post_processor"}) file.erase(key);
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                          "fuse_unk", "byte_fallback", "ignore_merges"}) {
    file["model"].erase(key);
  }
  file["normalizer"] = nullptr;
  file["model"]["end_of_word_suffix"] = nullptr;
  EXPECT_EQ(Tokenizer::parse(file.dump(), "short.json").encode("abc<|im_end|>"), abc_end);
}

TEST(TokenizerJson, WithoutNormalizerTextStaysAsItIs) {
  json file = sound();
  const std::string decomposed = "e\u0301";
  EXPECT_EQ(Tokenizer::parse(file.dump(), "nfc.json").encode(decomposed).size(), 2u);
  file["normalizer"] = nullptr;
  EXPECT_EQ(Tokenizer::parse(file.dump(), "plain.json").encode(decomposed).size(), 3u);
}

struct Fault {
  const char* pointer;  ///< JSON pointer to what is wrong
  const char* value;    ///< JSON to put there; nullptr removes it
  const char* message;  ///< what the error must say
};

/// One line, exit code 3, the file and what is wrong.
void expect_refused(const std::string& text, const std::string& message) {
  try {
    Tokenizer::parse(text, "bad.json");
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ExitCode::unusable) << what;
    EXPECT_NE(what.find(message), std::string::npos) << what << "\n  should say: " << message;
    EXPECT_EQ(what.rfind("bad.json: ", 0), 0u) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_LT(what.size(), 500u) << what;
  }
}

TEST(TokenizerJson, FaultsAreNamed) {
  const Fault faults[] = {
      {"/version", "\"2.0\"", "version: found \"2.0\", expected \"1.0\""},
      {"/version", nullptr, "version is missing"},
      {"/surprise", "1", "surprise: found 1, expected no such key"},
      {"/bad\nkey", "1", R"("bad\nkey": found 1)"},
      {"/truncation", R"({"max_length": 512})", "truncation: found {\"max_length\":512}, expected null"},
      {"/padding", "{}", "padding: found {}, expected null"},
      {"/normalizer", nullptr, "normalizer is missing"},
      {"/normalizer/type", "\"NFKC\"", "normalizer.type: found \"NFKC\", expected \"NFC\""},
      {"/normalizer/strip", "true", "normalizer.strip: found true"},
      {"/pre_tokenizer", "null", "pre_tokenizer: found null, expected an object"},
      {"/pre_tokenizer/type", "\"Whitespace\"", "pre_tokenizer.type: found \"Whitespace\""},
      {"/pre_tokenizer/pretokenizers", "[]", "pre_tokenizer.pretokenizers: found [], expected two steps"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", R"("\\p{L}+")",
       "pretokenizers[0].pattern.Regex: found"},
      {"/pre_tokenizer/pretokenizers/0/pattern", R"({"String": " "})", "pattern.String: found \" \""},
      {"/pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"",
       "pretokenizers[0].behavior: found \"Removed\""},
      {"/pre_tokenizer/pretokenizers/0/invert", "true", "pretokenizers[0].invert: found true"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", "true",
       "pretokenizers[1].add_prefix_space: found true"},
      {"/pre_tokenizer/pretokenizers/1/use_regex", "true", "pretokenizers[1].use_regex: found true"},
      {"/pre_tokenizer/pretokenizers/1/use_regex", nullptr, "pretokenizers[1].use_regex is missing"},
      {"/post_processor/type", "\"TemplateProcessing\"", "post_processor.type: found \"TemplateProcessing\""},
      {"/decoder/type", "\"WordPiece\"", "decoder.type: found \"WordPiece\""},
      {"/decoder", "null", "decoder: found null, expected an object"},
      {"/model/type", "\"Unigram\"", "model.type: found \"Unigram\""},
      {"/model/dropout", "0.1", "model.dropout: found 0.1"},
      {"/model/unk_token", "\"<unk>\"", "model.unk_token: found \"<unk>\""},
      {"/model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix: found \"##\""},
      {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix: found \"</w>\""},
      {"/model/byte_fallback", "true", "model.byte_fallback: found true"},
      {"/model/fuse_unk", "1", "model.fuse_unk: found 1, expected true or false"},
      {"/model/ignore_merges", "true", "model.ignore_merges: found true"},
      {"/model/vocab", "[]", "model.vocab: found [], expected an object"},
      {"/model/vocab/ab", "257", "expected an id from 0 to 257, each once"},
      {"/model/vocab/ab", "258", "model.vocab.\"ab\": found 258, expected an id from 0 to 257"},
      {"/model/vocab/ab", "-1", "model.vocab.\"ab\": found -1"},
      {"/model/vocab/ab", "1.5", "model.vocab.\"ab\": found 1.5"},
      {"/model/vocab/ab", "99999999999999999999", "model.vocab.\"ab\": found"},
      {"/model/vocab/!", nullptr, "expected an id from 0 to 256"},
      {"/model/merges", "{}", "model.merges: found {}, expected an array"},
      {"/model/merges/1", R"(["ab"])", "model.merges[1]: found [\"ab\"], expected a pair"},
      {"/model/merges/1", R"(["ab", 1])", "model.merges[1]: found [\"ab\",1]"},
      {"/model/merges/1", R"(["", "ab"])", "model.merges[1]: found"},
      {"/model/merges/1", R"("ab c")", "model.merges[1]: found \"ab c\", expected a pair"},
      {"/model/merges/1", R"(["ab", "zz"])", "model.merges[1] (\"ab\" \"zz\"): \"zz\" is not in model.vocab"},
      {"/model/merges/1", R"(["b", "c"])", "\"bc\" is not in model.vocab"},
      {"/model/merges/1", R"(["a", "b"])", "model.merges[1] (\"a\" \"b\"): listed before as model.merges[0]"},
      {"/model/merges", R"(["a b", "ab  c"])",
       "model.merges[1]: found \"ab  c\", expected two tokens and a space"},
      {"/added_tokens", "null", "added_tokens: found null, expected an array"},
      {"/added_tokens/0/id", "260", "added_tokens[0].id: found 260, expected an id below 260"},
      {"/added_tokens/0/id", "259", "added_tokens[0].id: \"<|im_start|>\" has id 259, expected 258"},
      {"/added_tokens/0/content", "\"\"", "added_tokens[0].content: found \"\", expected at least one"},
      {"/added_tokens/0/content", "\"ab\"", "added_tokens[0].id: \"ab\" has id 258, expected 256"},
      {"/added_tokens/1/content", "\"<|im_start|>\"",
       "added_tokens[1].content: \"<|im_start|>\" is there before"},
      {"/added_tokens/0/single_word", "true", "added_tokens[0].single_word: found true"},
      {"/added_tokens/0/special", nullptr, "added_tokens[0].special is missing"},
      {"/added_tokens/0/lstrip", "\"no\"", "added_tokens[0].lstrip: found \"no\", expected true or false"},
      {"/added_tokens/0/color", "1", "added_tokens[0].color: found 1"},
  };
  for (const Fault& fault : faults) {
    json file = sound();
    const json::json_pointer pointer(fault.pointer);
    if (fault.value != nullptr) {
      file[pointer] = json::parse(fault.value);
    } else {
      file[pointer.parent_pointer()].erase(pointer.back());
    }
    SCOPED_TRACE(fault.pointer);
    expect_refused(file.dump(), fault.message);
  }
}

TEST(TokenizerJson, AByteWithoutTokenIsNamed) {
  json file = sound();
  json& vocab = file["model"]["vocab"];
  vocab.erase("!");
  vocab["surplus"] = 0x21;
  expect_refused(file.dump(), "model.vocab: no token \"!\" for byte 0x21");
}

TEST(TokenizerJson, DuplicateKeysAreNamed) {
  std::string text = sound().dump();
  text.insert(1, R"("version": "1.0", )");
  expect_refused(text, "version: found \"1.0\", expected the key once");
  text = sound().dump();
  text.insert(text.find("\"ab\":256"), "\"ab\":258,");
  expect_refused(text, "model.vocab: \"ab\" has two ids, 256 and 258");
}

TEST(TokenizerJson, WhatIsNoJsonIsRefused) {
  const std::string text = sound().dump();
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[]"), text.substr(0, text.size() / 2), text + "x",
        std::string("\xFF\xFE"), std::string(100000, '[')}) {
    expect_refused(bad, "bad.json: ");
  }
}

TEST(TokenizerJson, LStripBesideRStripOfWhiteSpaceIsRefused) {
  json file = sound();
  file["added_tokens"][0]["rstrip"] = true;
  file["added_tokens"][1]["content"] = " x";
  expect_refused(file.dump(), "added_tokens[1]: found");
}

TEST(TokenizerJson, AMissingFileIsUnusable) {
  try {
    Tokenizer::load("no/such/tokenizer.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::unusable);
    EXPECT_NE(std::string(error.what()).find("no/such/tokenizer.json"), std::string::npos);
  }
}

/// Every prefix and many one-byte changes of a small file: accepted or refused, never anything else.
TEST(TokenizerJson, DamagedFilesNeverCrash) {
  const std::string text = sound().dump();
  std::size_t refused = 0;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    for (const char replacement : {'\0', '"', '9', '}'}) {
      std::string damaged = text;
      damaged[i] = replacement;
      try {
        Tokenizer::parse(damaged, "damaged.json");
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.code(), ExitCode::unusable);
      }
    }
  }
  EXPECT_GT(refused, text.size() / 3);
}

}  // namespace
}  // namespace fs::text

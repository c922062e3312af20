#include "cli/gguf_tokenizer.h"
#include "gguf_fixtures.h"
#include "model/gguf_model.h"
#include "model_malformed.h"

namespace fs::model {
namespace {

using namespace testing;

struct GgufCase {
  const char* name;
  std::function<void(SmallGguf&)> spoil;
  std::vector<const char*> mentions;  // what the message must name beside the file
};

/// Fails the test unless the file is refused as it should be.
void expect_refused(const char* name, const std::string& bytes, const std::vector<const char*>& mentions) {
  SCOPED_TRACE(name);
  const ScratchDirectory directory;
  write_bytes(directory / "m.gguf", bytes);
  largest_allocation = 0;
  try {
    const auto model = GgufModel::open(directory / "m.gguf");
    ThreadPool pool(1);
    static_cast<void>(GgufModel::load(model, pool, {}));
    if (model->vocabulary()) static_cast<void>(cli::gguf_tokenizer(*model->vocabulary(), "m.gguf"));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_LE(largest_allocation, (std::size_t{1} << 20) + 32 * bytes.size());
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ExitCode::unusable) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 600U) << message;
    EXPECT_NE(message.find("m.gguf"), std::string::npos) << message;
    for (const char* mention : mentions) EXPECT_NE(message.find(mention), std::string::npos) << message;
  }
}

void expect_refused(const GgufCase& item) {
  SmallGguf gguf;
  item.spoil(gguf);
  expect_refused(item.name, gguf.bytes(), item.mentions);
}

// Ways to spoil.
std::function<void(SmallGguf&)> set(const char* key, std::string value) {
  return [=](SmallGguf& gguf) { gguf.value(key) = value; };
}
std::function<void(SmallGguf&)> add(std::string key, std::string value) {
  return [=](SmallGguf& gguf) { gguf.pairs.emplace_back(key, value); };
}
std::function<void(SmallGguf&)> without(const char* key) {
  return [=](SmallGguf& gguf) { gguf.remove(key); };
}
std::function<void(SmallGguf&)> tensor(const char* name, std::function<void(SmallGguf::Slot&)> spoil) {
  return [=](SmallGguf& gguf) { spoil(gguf.slot(name)); };
}

constexpr std::uint64_t endless = 0xFFFFFFFFFFFFFFFF;

TEST(MalformedGguf, TheFixtureItselfIsWell) {
  const ScratchDirectory directory;
  write_bytes(directory / "m.gguf", SmallGguf().bytes());
  const auto model = GgufModel::open(directory / "m.gguf");
  EXPECT_EQ(cli::gguf_tokenizer(*model->vocabulary(), "m.gguf").encode("abcab"),
            (std::vector<TokenId>{257, 256}));
}

TEST(MalformedGguf, Header) {
  expect_refused("empty", "", {"GGUF"});
  expect_refused("three bytes", "GGU", {"GGU"});
  expect_refused("an LFS pointer", "version https://git-lfs.github.com/spec/v1\n",
                 {"\"vers\"", "no GGUF file"});
  expect_refused("magic alone", "GGUF", {"version", "cut off"});
  expect_refused("header cut", "GGUF" + raw(std::uint32_t{3}) + raw(std::uint64_t{1}), {"cut off"});
  const std::vector<GgufCase> cases = {
      {"magic", [](SmallGguf& g) { g.magic = "GGJT"; }, {"GGJT", "\"GGUF\""}},
      {"magic reversed", [](SmallGguf& g) { g.magic = "FUGG"; }, {"FUGG"}},
      {"version 0", [](SmallGguf& g) { g.version = 0; }, {"version is 0", "2 or 3"}},
      {"version 1", [](SmallGguf& g) { g.version = 1; }, {"version is 1"}},
      {"version 4", [](SmallGguf& g) { g.version = 4; }, {"version is 4"}},
      {"big-endian", [](SmallGguf& g) { g.version = 0x03000000; }, {"big-endian"}},
      {"2^64 pairs", [](SmallGguf& g) { g.n_pairs = endless; }, {"number of metadata pairs"}},
      {"2^64 tensors", [](SmallGguf& g) { g.n_tensors = endless; }, {"number of tensors"}},
      {"2^60 tensors", [](SmallGguf& g) { g.n_tensors = std::uint64_t{1} << 60; }, {"number of tensors"}},
      {"one pair too many", [](SmallGguf& g) { g.n_pairs = g.pairs.size() + 1; }, {"m.gguf"}},
      {"one tensor too many", [](SmallGguf& g) { g.n_tensors = g.slots.size() + 1; }, {"m.gguf"}},
      {"one tensor too few", [](SmallGguf& g) { g.n_tensors = g.slots.size() - 1; }, {"m.gguf"}},
      {"nothing in it",
       [](SmallGguf& g) { g.pairs.clear(), g.slots.clear(), g.data.clear(); },
       {"architecture"}},
  };
  for (const GgufCase& item : cases) expect_refused(item);
}

TEST(MalformedGguf, EveryTruncation) {
  const std::string whole = SmallGguf().bytes();
  for (std::size_t size = 0; size < whole.size(); size += size < 1200 ? 13 : 997) {
    expect_refused("cut", whole.substr(0, size), {});
  }
  expect_refused("a byte less", whole.substr(0, whole.size() - 1), {"output_norm.weight", "cut off"});
}

TEST(MalformedGguf, Values) {
  const std::string endless_key(70'000, 'k');
  const std::vector<GgufCase> cases = {
      {"key twice", add("general.type", text_value("model")), {"general.type", "twice"}},
      {"empty key", add("", u32_value(1)), {"key", "0 bytes"}},
      {"endless key", add(endless_key, u32_value(1)), {"70000"}},
      {"unknown value type",
       set("general.type", raw(std::uint32_t{13}) + raw(std::uint64_t{0})),
       {"13", "0 to 12"}},
      {"boolean of 2", add("x", boolean_value(2)), {"\"x\"", "boolean is 2"}},
      {"string beyond the file", set("general.type", raw(std::uint32_t{8}) + raw(endless)), {"general.type"}},
      {"string of 2^63", set("general.type", raw(std::uint32_t{8}) + raw(endless / 2 + 1)), {"general.type"}},
      {"array of arrays", add("x", array_value(9, 1, array_value(4, 0, ""))), {"\"x\"", "array of arrays"}},
      {"array of nonsense", add("x", array_value(99, 1, "")), {"\"x\"", "99"}},
      {"array of 2^64", add("x", array_value(0, endless, "")), {"\"x\"", "18446744073709551615"}},
      {"array that wraps", add("x", array_value(10, std::uint64_t{1} << 61, "")), {"\"x\""}},
      {"2^60 strings", add("x", array_value(8, std::uint64_t{1} << 60, "")), {"\"x\""}},
      {"a string of the array too long",
       add("x", array_value(8, 2, raw_text("a") + raw(std::uint64_t{1} << 40))),
       {"\"x\"", "string of"}},
      {"control characters in a key", add("a\nb\x1b[2J", boolean_value(2)), {R"("a\x0ab\x1b[2J")"}},
      {"alignment 0", add("general.alignment", u32_value(0)), {"general.alignment is 0"}},
      {"alignment 48", add("general.alignment", u32_value(48)), {"general.alignment is 48", "power of two"}},
      {"alignment 2^31", add("general.alignment", u32_value(1U << 31U)), {"general.alignment is 2147483648"}},
      {"alignment a string", add("general.alignment", text_value("32")), {"general.alignment is \"32\""}},
      {"offsets of another alignment", add("general.alignment", u32_value(4096)), {"offset", "4096"}},
  };
  for (const GgufCase& item : cases) expect_refused(item);
}

TEST(MalformedGguf, Configuration) {
  const auto rank = [](std::uint32_t value) { return u32_value(value); };
  const std::vector<GgufCase> cases = {
      {"no architecture", without("general.architecture"), {"general.architecture is missing"}},
      {"llama", set("general.architecture", text_value("llama")), {"\"llama\"", "\"qwen3\""}},
      {"architecture a number", set("general.architecture", u32_value(3)), {"general.architecture is 3"}},
      {"qwen3moe", set("general.architecture", text_value("qwen3moe")), {"qwen3moe"}},
      {"an adapter", set("general.type", text_value("adapter")), {"general.type", "adapter"}},
      {"a part of a split model", add("split.count", rank(2)), {"split.count is 2"}},
      {"no layers", set("qwen3.block_count", rank(0)), {"qwen3.block_count is 0"}},
      {"missing layers", without("qwen3.block_count"), {"qwen3.block_count is missing"}},
      {"two layers", set("qwen3.block_count", rank(2)), {"blk.1.", "missing"}},
      {"2^32 layers", set("qwen3.block_count", u64_value(std::uint64_t{1} << 32U)), {"4294967296"}},
      {"negative width", set("qwen3.embedding_length", i32_value(-32)), {"embedding_length is -32"}},
      {"width beyond int64", set("qwen3.embedding_length", u64_value(endless)), {"18446744073709551615"}},
      {"width as a float", set("qwen3.embedding_length", f32_value(32)), {"embedding_length is 32"}},
      {"other width", set("qwen3.embedding_length", rank(64)), {"[264, 32]", "[264, 64]"}},
      {"heads by layer", set("qwen3.attention.head_count", i32s_value({2})), {"an array of 1 integers"}},
      {"heads no multiple", set("qwen3.attention.head_count_kv", rank(3)), {"head_count is 2", "multiple"}},
      {"odd head", set("qwen3.attention.key_length", rank(15)), {"key_length is 15", "even"}},
      {"no key_length", without("qwen3.attention.key_length"), {"key_length is missing"}},
      {"other value_length", set("qwen3.attention.value_length", rank(32)), {"value_length is 32", "16"}},
      {"partial RoPE", add("qwen3.rope.dimension_count", rank(8)), {"dimension_count is 8", "16"}},
      {"widths that multiply beyond the limit",
       [=](SmallGguf& g) {
         g.value("qwen3.attention.head_count") = rank(65536);
         g.value("qwen3.attention.key_length") = rank(512);
       },
       {"key_length is 512", "65536 heads"}},
      {"no context", set("qwen3.context_length", rank(0)), {"context_length is 0"}},
      {"eps zero", set("qwen3.attention.layer_norm_rms_epsilon", f32_value(0)), {"rms_epsilon is 0"}},
      {"eps NaN", set("qwen3.attention.layer_norm_rms_epsilon", f32_value(NAN)), {"rms_epsilon is nan"}},
      {"eps an integer", set("qwen3.attention.layer_norm_rms_epsilon", rank(1)), {"rms_epsilon is 1"}},
      {"theta infinite", set("qwen3.rope.freq_base", f32_value(INFINITY)), {"freq_base is inf"}},
      {"no theta", without("qwen3.rope.freq_base"), {"freq_base is missing"}},
      {"YaRN", add("qwen3.rope.scaling.type", text_value("yarn")), {"scaling.type", "yarn", "none"}},
      {"a scaling factor",
       add("qwen3.rope.scaling.factor", f32_value(4)),
       {"scaling.factor", "not implemented"}},
      {"a sliding window", add("qwen3.attention.sliding_window", rank(8)), {"sliding_window"}},
      {"an embedding model", add("qwen3.pooling_type", rank(3)), {"pooling_type"}},
      {"other vocab_size", add("qwen3.vocab_size", rank(263)), {"vocab_size is 263", "264"}},
  };
  for (const GgufCase& item : cases) expect_refused(item);
}

TEST(MalformedGguf, Tensors) {
  const char* const q = "blk.0.attn_q.weight";
  const auto sizes = [=](std::vector<std::uint64_t> dims) {
    return tensor(q, [=](SmallGguf::Slot& slot) { slot.sizes = dims; });
  };
  const auto type = [=](std::uint32_t number) {
    return tensor(q, [=](SmallGguf::Slot& slot) { slot.type = number; });
  };
  const auto offset = [=](std::uint64_t bytes) {
    return tensor(q, [=](SmallGguf::Slot& slot) { slot.offset = bytes; });
  };
  const auto rename = [](const char* from, const char* to) {
    return tensor(from, [=](SmallGguf::Slot& slot) { slot.name = to; });
  };
  const std::vector<GgufCase> cases = {
      {"no dimension", sizes({}), {q, "0 dimensions"}},
      {"five dimensions", sizes({32, 32, 1, 1, 1}), {q, "5 dimensions"}},
      {"2^32 dimensions", [](SmallGguf& g) { g.slots.back().sizes.assign(100, 1); }, {"100 dimensions"}},
      {"a size of 0", sizes({32, 0}), {q, "dimension is 0"}},
      {"product beyond 64 bits", sizes({std::uint64_t{1} << 40, std::uint64_t{1} << 40}), {q, "2^64"}},
      {"product wraps to the right size", sizes({32, (std::uint64_t{1} << 59) + 32}), {q, "2^64"}},
      {"a size of 2^64 - 1", sizes({endless}), {q, "2^64"}},
      {"transposed",
       tensor("blk.0.attn_k.weight",
              [](auto& slot) {
                slot.sizes = {16, 32};
              }),
       {"[32, 16]", "[16, 32]"}},
      {"flat", sizes({1024}), {q, "[1024]", "[32, 32]"}},
      {"norm with two dimensions",
       tensor("output_norm.weight",
              [](auto& slot) {
                slot.sizes = {32, 1};
              }),
       {"output_norm.weight", "[1, 32]", "[32]"}},
      {"type 4, removed", type(4), {q, "type 4"}},
      {"type Q5_1", type(7), {q, "Q5_1"}},
      {"type IQ4_NL", type(20), {q, "IQ4_NL"}},
      {"type 2^32 - 1", type(0xFFFFFFFF), {q, "type 4294967295"}},
      {"Q4_K rows of 32", type(12), {q, "rows of 32", "256", "Q4_K"}},
      {"other type, other size", type(0), {"overlaps"}},
      {"name twice", rename("blk.0.attn_k.weight", "blk.0.attn_v.weight"), {"blk.0.attn_v.weight", "twice"}},
      {"unknown name",
       rename("blk.0.ffn_up.weight", "blk.0.ffn_up.bias"),
       {"blk.0.ffn_up.bias", "not expected"}},
      {"rope factors", rename("blk.0.ffn_up.weight", "rope_freqs.weight"), {"rope_freqs.weight"}},
      {"no embedding", rename("token_embd.weight", "token_embed.weight"), {"token_embd.weight", "missing"}},
      {"empty name", rename(q, ""), {"0 bytes"}},
      {"control characters in a name", rename(q, "a\nb"), {R"("a\x0ab")"}},
      {"offset not aligned", offset(17), {q, "offset is 17", "32"}},
      {"offset of another", offset(0), {"overlaps"}},
      {"offset beyond the file", offset(std::uint64_t{1} << 40), {"gap"}},
      {"offset near 2^64", offset(endless - 31), {"gap"}},
      {"a gap",
       [](SmallGguf& g) {
         g.slots.back().offset += 32;
         g.data += std::string(32, 'x');
       },
       {"output_norm.weight", "gap"}},
      {"bytes behind the last tensor",
       [](SmallGguf& g) { g.data += std::string(33, 'x'); },
       {"33 bytes behind"}},
      {"data gone", [](SmallGguf& g) { g.data.clear(); }, {"token_embd.weight", "cut off"}},
  };
  for (const GgufCase& item : cases) expect_refused(item);
}

TEST(MalformedGguf, Vocabulary) {
  const auto token = [](std::size_t id, std::string text) -> std::function<void(SmallGguf&)> {
    return [=](SmallGguf& gguf) { gguf.tokens[id] = text; };
  };
  const auto merge = [](std::string text) -> std::function<void(SmallGguf&)> {
    return [=](SmallGguf& gguf) { gguf.merges[1] = text; };
  };
  const std::vector<GgufCase> cases = {
      {"no model", without("tokenizer.ggml.model"), {"tokenizer.ggml.model is missing"}},
      {"SentencePiece", set("tokenizer.ggml.model", text_value("llama")), {"\"llama\"", "gpt2"}},
      {"no split pattern", without("tokenizer.ggml.pre"), {"tokenizer.ggml.pre is missing"}},
      {"other split pattern", set("tokenizer.ggml.pre", text_value("llama-bpe")), {"llama-bpe", "qwen2"}},
      {"no tokens", without("tokenizer.ggml.tokens"), {"tokenizer.ggml.tokens is missing"}},
      {"tokens as numbers", set("tokenizer.ggml.tokens", i32s_value({1})), {"an array of 1 integers"}},
      {"a token too few", [](SmallGguf& g) { g.tokens.pop_back(); }, {"263 strings", "264"}},
      {"a token too many", [](SmallGguf& g) { g.tokens.emplace_back("x"); }, {"265 strings", "264"}},
      {"an empty token", token(5, ""), {"tokens[5]", "at least one"}},
      {"a token of no UTF-8", token(5, "\xff"), {"tokens[5]", "\\xff"}},
      {"token twice", token(256, "a"), {"tokenizer.ggml.tokens", "two ids"}},
      {"a byte without token", token(97, "zz"), {"tokenizer.ggml.tokens", "no token"}},
      {"no types", without("tokenizer.ggml.token_type"), {"token_type is missing"}},
      {"a type too few", [](SmallGguf& g) { g.types.pop_back(); }, {"263", "264"}},
      {"type 2", [](SmallGguf& g) { g.types[7] = 2; }, {"token_type[7] is 2"}},
      {"type -1", [](SmallGguf& g) { g.types[7] = -1; }, {"token_type[7] is -1"}},
      {"no merges", without("tokenizer.ggml.merges"), {"merges is missing"}},
      {"merge of one", merge("ab"), {"merges[1]", "\"ab\""}},
      {"merge of three", merge("a b c"), {"merges[1]", "\"a b c\""}},
      {"merge with nothing left", merge(" b"), {"merges[1]"}},
      {"merge with nothing right", merge("a "), {"merges[1]"}},
      {"merge of unknown tokens", merge("a cd"), {"merges[1]", "\"cd\""}},
      {"merge into an unknown token", merge("c d"), {"merges[1]", "\"cd\""}},
      {"merge twice", merge("a b"), {"merges[1]", "merges[0]"}},
      {"no eos", without("tokenizer.ggml.eos_token_id"), {"eos_token_id is missing"}},
      {"eos beyond", set("tokenizer.ggml.eos_token_id", u32_value(264)), {"eos_token_id is 264"}},
      {"padding beyond", add("tokenizer.ggml.padding_token_id", u32_value(0xFFFFFFFF)), {"4294967295"}},
      {"adds BOS", add("tokenizer.ggml.add_bos_token", boolean_value(1)), {"add_bos_token is true"}},
      {"template no string", add("tokenizer.chat_template", u32_value(1)), {"chat_template is 1"}},
  };
  for (const GgufCase& item : cases) expect_refused(item);
}

}  // namespace
}  // namespace fs::model

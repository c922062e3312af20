// Malformed checkpoints: whatever a file says, the answer is one line that names it, and no memory beyond its
// size.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "model/checkpoint.h"
#include "model_fixtures.h"

namespace {
std::atomic<std::size_t> largest_allocation{0};

void* allocate(std::size_t size) {
  std::size_t seen = largest_allocation;
  while (seen < size && !largest_allocation.compare_exchange_weak(seen, size)) {
  }
  return std::malloc(size);
}
}  // namespace

// Never inlined: g++ 12 would take malloc and delete, or new and free, for mismatched.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (void* memory = allocate(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace fs::model {
namespace {

using testing::replace;
using testing::safetensors_file;
using testing::ScratchDirectory;
using testing::SmallCheckpoint;

using Spoil = std::function<void(SmallCheckpoint&)>;

struct Case {
  const char* name;
  Spoil spoil;
  std::vector<const char*> mentions;  // what the message must name: the file and the key or tensor
};

// Ways to spoil one file.
Spoil config(const char* from, const char* to) {
  return [=](SmallCheckpoint& files) { replace(files.config, from, to); };
}
Spoil whole_config(std::string text) {
  return [=](SmallCheckpoint& files) { files.config = text; };
}
Spoil generation(const char* text) {
  return [=](SmallCheckpoint& files) { files.generation = text; };
}
Spoil header(const char* from, const char* to) {
  return [=](SmallCheckpoint& files) { replace(files.header, from, to); };
}
Spoil whole_header(std::string text) {
  return [=](SmallCheckpoint& files) { files.header = text; };
}
Spoil weights(std::string bytes) {
  return [=](SmallCheckpoint& files) { files.others["model.safetensors"] = bytes; };
}

void expect_one_line_error(const Case& item) {
  SCOPED_TRACE(item.name);
  const ScratchDirectory directory;
  SmallCheckpoint files;
  item.spoil(files);
  const Location location = files.write_to(directory.path());
  std::size_t size = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory.path())) size += file.file_size();
  largest_allocation = 0;
  try {
    ThreadPool pool(1);
    Checkpoint::open(location).load(pool);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_LE(largest_allocation, (std::size_t{1} << 20) + 32 * size);
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ExitCode::unusable) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 600U) << message;
    for (const char* mention : item.mentions) EXPECT_NE(message.find(mention), std::string::npos) << message;
  }
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

TEST(Malformed, SafetensorsFile) {
  const std::string all_ones(8, '\xff');
  const Spoil long_name = [](SmallCheckpoint& files) {
    replace(files.header, "model.embed", std::string(5000, 'n'));
  };
  const std::vector<Case> cases = {
      {"empty", weights(""), {"model.safetensors", "0 bytes"}},
      {"seven bytes", weights("1234567"), {"model.safetensors", "7 bytes"}},
      {"length 0", weights(std::string(8, '\0')), {"model.safetensors", "header"}},
      {"length beyond the file",
       weights(std::string("\x40\0\0\0\0\0\0\0{}", 10)),
       {"header length is 64", "at most 2"}},
      {"length 2^64 - 1", weights(all_ones + "{}"), {"header length is 18446744073709551615"}},
      {"a PyTorch pickle",
       weights("PK\x03\x04" + std::string(100, 'x')),
       {"model.safetensors", "no safetensors"}},
      {"an LFS pointer",
       weights("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
       {"no safetensors"}},
      {"header no object", whole_header("[]"), {"header does not start with {"}},
      {"header not JSON", whole_header("{weights}"), {"header", "JSON"}},
      {"header cut off", [](SmallCheckpoint& files) { files.header.pop_back(); }, {"header", "JSON"}},
      {"header invalid UTF-8", header("model.norm", "model.\xc3\x28"), {"header", "JSON"}},
      {"header nested without end", whole_header("{\"a\":" + std::string(100'000, '[')), {"header", "JSON"}},
      {"zero byte in the padding", [](SmallCheckpoint& files) { files.header += '\0'; }, {"header", "JSON"}},
      {"empty header",
       [](SmallCheckpoint& files) {
         files.header = "{}";
         files.data.clear();
       },
       {"model.safetensors", "model.embed_tokens.weight", "missing"}},
      {"data cut by a byte",
       [](SmallCheckpoint& files) { files.data.pop_back(); },
       {"model.norm.weight", "cut off"}},
      {"all data gone",
       [](SmallCheckpoint& files) { files.data.clear(); },
       {"model.embed_tokens.weight", "cut off"}},
      {"a byte too much",
       [](SmallCheckpoint& files) { files.data += 'x'; },
       {"1 bytes behind the last tensor"}},
      {"tensor twice",
       header("\"model.norm.weight\"", "\"model.embed_tokens.weight\""),
       {"embed_tokens", "twice"}},
      {"tensor twice, escaped",
       header("\"model.norm.weight\"", R"("model.embed_tokens.w\u0065ight")"),
       {"twice"}},
      {"dtype twice", header("\"dtype\":\"BF16\"", R"("dtype":"BF16","dtype":"F16")"), {"dtype", "twice"}},
      {"tensor no object",
       header("\"model.norm.weight\":{", "\"x\":7,\"model.norm.weight\":{"),
       {"\"x\"", "7"}},
      {"dtype F8_E4M3", header("BF16", "F8_E4M3"), {"embed_tokens", "F8_E4M3", "BF16"}},
      {"dtype I64", header("BF16", "I64"), {"embed_tokens", "I64"}},
      {"dtype lower case", header("BF16", "bf16"), {"embed_tokens", "bf16"}},
      {"dtype no string", header("\"BF16\"", "16"), {"embed_tokens", "dtype is 16"}},
      {"no dtype", header("\"dtype\":\"BF16\",", ""), {"embed_tokens", "dtype is missing"}},
      {"no shape", header("\"shape\":[8, 6],", ""), {"embed_tokens", "shape is missing"}},
      {"no data_offsets",
       header(",\"data_offsets\":[0,96]", ""),
       {"embed_tokens", "data_offsets is missing"}},
      {"unknown key", header("\"dtype\"", "\"strides\":[6,1],\"dtype\""), {"embed_tokens", "strides"}},
      {"shape no array", header("[8, 6]", "48"), {"embed_tokens", "shape is 48"}},
      {"negative size", header("[8, 6]", "[-8, -6]"), {"embed_tokens", "shape is -8"}},
      {"fractional size", header("[8, 6]", "[8, 6.0]"), {"embed_tokens", "shape is 6.0"}},
      {"size a string", header("[8, 6]", "[\"8\", 6]"), {"embed_tokens", "shape is \"8\""}},
      {"nine dimensions", header("[8, 6]", "[8, 6, 1, 1, 1, 1, 1, 1, 1]"), {"embed_tokens", "array of 9"}},
      {"size × bytes beyond 64 bits",
       header("[8, 6]", "[18446744073709551615]"),
       {"embed_tokens", "more than 2^64"}},
      {"product wraps to the right size",
       header("[8, 6]", "[9223372036854775856]"),
       {"embed_tokens", "2^64"}},
      {"sizes wrap to 0", header("[8, 6]", "[4294967296, 4294967296]"), {"embed_tokens", "more than 2^64"}},
      {"one offset", header("[0,96]", "[96]"), {"embed_tokens", "data_offsets", "array of 1"}},
      {"three offsets", header("[0,96]", "[0,96,192]"), {"embed_tokens", "data_offsets", "array of 3"}},
      {"offset negative", header("[0,96]", "[-96,0]"), {"embed_tokens", "data_offsets is -96"}},
      {"end before begin", header("[0,96]", "[96,0]"), {"embed_tokens", "[96, 0]"}},
      {"fewer bytes than the shape", header("[0,96]", "[0,94]"), {"embed_tokens", "[0, 94]", "96 bytes"}},
      {"offsets near 2^64",
       header("[0,96]", "[18446744073709551519,18446744073709551615]"),
       {"embed_tokens", "ends at byte 18446744073709551615"}},
      {"overlap", header("[96,108]", "[94,106]"), {"layers.0", "overlaps"}},
      {"two tensors in one place", header("[96,108]", "[0,12]"), {"overlaps"}},
      {"a gap",
       [](SmallCheckpoint& files) {
         files.data += std::string(2, 'x');
         const std::size_t end = files.data.size();
         replace(files.header, fmt::format("[{},{}]", end - 14, end - 2),
                 fmt::format("[{},{}]", end - 12, end));
       },
       {"model.norm.weight", "gap"}},
      {"metadata no object", header("{", R"({"__metadata__":"pt",)"), {"__metadata__", "pt"}},
      {"metadata no string",
       header("{", R"({"__metadata__":{"format":1},)"),
       {"__metadata__", "format", "1"}},
      {"missing tensor",
       header("model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up.weight"),
       {"model.safetensors", "model.layers.0.mlp.up_proj.weight", "missing"}},
      {"surplus tensor",
       [](SmallCheckpoint& files) {
         replace(files.header, "{",
                 R"({"model.layers.1.bias":{"dtype":"F16","shape":[0],"data_offsets":[0,0]},)");
       },
       {"model.safetensors", "model.layers.1.bias", "not expected"}},
      {"control characters in a name",
       header("{", R"({"a\nb\u001b[2J":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"),
       {R"("a\x0ab\x1b[2J")"}},
      {"an endless name", long_name, {"model.safetensors", "missing"}},
      {"transposed", header("[8, 6]", "[6, 8]"), {"model.embed_tokens.weight", "[6, 8]", "[8, 6]"}},
      {"flat", header("[8, 6]", "[48]"), {"model.embed_tokens.weight", "[48]", "[8, 6]"}},
      {"norm with two dimensions", header("\"shape\":[6]", "\"shape\":[1,6]"), {"norm", "[1, 6]", "[6]"}},
      {"untied without head",
       config("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"),
       {"model.safetensors", "lm_head.weight", "tie_word_embeddings"}},
      {"tied with a head of another shape",
       header("{", R"({"lm_head.weight":{"dtype":"F16","shape":[0,6],"data_offsets":[0,0]},)"),
       {"lm_head.weight", "[0, 6]", "[8, 6]"}},
  };
  for (const Case& item : cases) expect_one_line_error(item);
}

TEST(Malformed, HeaderOverTheFormatsLimit) {
  const ScratchDirectory directory;
  const Location location = SmallCheckpoint().write_to(directory.path());
  const auto weights_file = directory / "model.safetensors";
  testing::write_bytes(weights_file, safetensors_file("{", ""));
  std::filesystem::resize_file(weights_file, 200'000'000);  // sparse: takes no disk
  const std::uint64_t length = 100'000'001;
  std::fstream(weights_file, std::ios::binary | std::ios::in | std::ios::out)
      .write(reinterpret_cast<const char*>(&length), sizeof length);
  largest_allocation = 0;
  try {
    Checkpoint::open(location).tensors();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("at most 100000000"), std::string::npos) << error.what();
    EXPECT_LT(largest_allocation, std::size_t{1} << 20);
  }
}

/// The small checkpoint as one shard and an index that says `weight_map`.
Spoil index(std::function<void(std::string&)> spoil) {
  return [=](SmallCheckpoint& files) {
    std::string json = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
    for (const auto& tensor : expected_tensors(parse_config(files.config, "config.json"))) {
      json += fmt::format("\"{}\": \"one.safetensors\", ", tensor.name);
    }
    json.resize(json.size() - 2);
    json += "}}";
    spoil(json);
    files.others["model.safetensors.index.json"] = json;
    files.weights_name = "one.safetensors";
    files.others["two.safetensors"] =
        safetensors_file(R"({"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", "");
  };
}
Spoil index(const char* from, const char* to) {
  return index([=](std::string& json) { replace(json, from, to); });
}

TEST(Malformed, Index) {
  const char* const shard = "\"model.norm.weight\": \"one.safetensors\"";
  const Spoil shard_gone = [](SmallCheckpoint& files) {
    index([](std::string&) {})(files);
    files.weights_name = "another.safetensors";
  };
  const auto norm_in = [=](const char* name) { return index(shard, name); };
  const std::vector<Case> cases = {
      {"empty", index([](std::string& json) { json.clear(); }), {"index.json", "JSON"}},
      {"an array", index([](std::string& json) { json = "[]"; }), {"index.json", "object"}},
      {"no weight_map", index("weight_map", "weights"), {"index.json", "weight_map is missing"}},
      {"weight_map an array",
       index([](std::string& json) { json = R"({"weight_map": []})"; }),
       {"weight_map", "array"}},
      {"weight_map empty",
       index([](std::string& json) { json = R"({"weight_map": {}})"; }),
       {"weight_map", "empty"}},
      {"tensor twice",
       norm_in(R"("model.norm.weight": "one.safetensors", "model.norm.weight": "two.safetensors")"),
       {"index.json", "model.norm.weight", "twice"}},
      {"shard no string", norm_in(R"("model.norm.weight": 1)"), {"weight_map", "model.norm.weight"}},
      {"shard above",
       norm_in(R"("model.norm.weight": "../one.safetensors")"),
       {"weight_map", "../one.safetensors"}},
      {"shard below",
       norm_in(R"("model.norm.weight": "a/one.safetensors")"),
       {"weight_map", "a/one.safetensors"}},
      {"shard absolute",
       norm_in(R"("model.norm.weight": "/etc/one.safetensors")"),
       {"weight_map", "/etc/one"}},
      {"shard with a backslash",
       norm_in(R"("model.norm.weight": "..\\one.safetensors")"),
       {"weight_map", "one"}},
      {"shard with a zero byte",
       norm_in(R"("model.norm.weight": "one\u0000.safetensors")"),
       {"weight_map", "\\x00"}},
      {"shard hidden", norm_in(R"("model.norm.weight": ".safetensors")"), {"weight_map", ".safetensors"}},
      {"shard of another kind",
       norm_in(R"("model.norm.weight": "config.json")"),
       {"weight_map", "config.json"}},
      {"shard not there", shard_gone, {"one.safetensors", "cannot open"}},
      {"tensor not in its shard",
       norm_in(R"("model.norm.weight": "two.safetensors")"),
       {"index.json", "one.safetensors", "model.norm.weight"}},
      {"tensor in no shard",
       norm_in(R"("model.norm.weight": "one.safetensors", "y": "one.safetensors")"),
       {"index.json", "\"y\"", "one.safetensors"}},
      {"surplus shard",
       norm_in(R"("model.norm.weight": "one.safetensors", "x": "two.safetensors")"),
       {"two.safetensors", "\"x\"", "not expected"}},
      {"unlisted tensor",
       index(", \"model.norm.weight\": \"one.safetensors\"", ""),
       {"index.json", "one.safetensors", "model.norm.weight", "does not list"}},
      {"no shard listed for a model tensor",
       norm_in(R"("x": "two.safetensors")"),
       {"index.json", "model.norm.weight"}},
  };
  for (const Case& item : cases) expect_one_line_error(item);
}

}  // namespace
}  // namespace fs::model

#include "model_malformed.h"

namespace fs::model {
namespace {

using testing::Case;
using testing::config;
using testing::expect_one_line_error;
using testing::replace;
using testing::safetensors_file;
using testing::ScratchDirectory;
using testing::SmallCheckpoint;
using testing::Spoil;

// Ways to spoil the weights.
Spoil header(const char* from, const char* to) {
  return [=](SmallCheckpoint& files) { replace(files.header, from, to); };
}
Spoil whole_header(std::string text) {
  return [=](SmallCheckpoint& files) { files.header = text; };
}
Spoil weights(std::string bytes) {
  return [=](SmallCheckpoint& files) { files.others["model.safetensors"] = bytes; };
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

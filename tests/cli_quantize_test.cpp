// `fs quantize`: what it writes runs as the model it was made of, bit for bit; and it spoils no file.
#include <nlohmann/json.hpp>
#include <set>

#include "cli_process.h"

namespace cli_test {
namespace {

namespace files = std::filesystem;
using Json = nlohmann::json;

constexpr const char* odd = "synthetic:tiny-odd";
constexpr const char* prompt = "The capital of France is";

/// Every logit of a prompt, as bytes.
std::string logits(const std::string& model, std::vector<std::string> flags) {
  const TemporaryDirectory directory;
  flags.insert(flags.begin(),
               {"logits", "-q", "--model", model, "--all-positions", "--out", directory / "l.safetensors"});
  const Outcome outcome = fs(flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return read_text(directory / "l.safetensors");
}

Json inspect(const std::string& model) { return Json::parse(fs({"inspect", "--json", model}).out); }

std::size_t entries(const files::path& directory) {
  return static_cast<std::size_t>(std::distance(files::directory_iterator(directory), {}));
}

TEST(Quantize, RunsAsTheModelItWasMadeOfBitForBit) {
  for (const char* const format : {"q8_0", "bf16", "f16", "f32"}) {
    SCOPED_TRACE(format);
    const std::string dtype = format;
    const TemporaryDirectory directory;
    const std::string file = directory / "tiny.gguf";
    const Outcome outcome = fs({"quantize", tiny_model(), file, "--dtype", dtype});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("fs: wrote ")) << outcome.err;
    for (const char* const backend : {"cpu", "reference"}) {
      EXPECT_EQ(logits(file, {"--backend", backend, prompt}),
                logits(tiny_model(), {"--backend", backend, "--dtype", dtype, prompt}))
          << backend;
    }
    const std::vector<std::string> chat = {"generate", "-q", "--chat", "-n", "12", "Why is the sky blue?",
                                           "--model"};
    auto from_file = chat, from_checkpoint = chat;
    from_file.push_back(file);
    from_checkpoint.insert(from_checkpoint.end(), {tiny_model(), "--dtype", dtype});
    EXPECT_EQ(fs(from_file).out, fs(from_checkpoint).out);
    // And once more: a file made of the file is the same, byte for byte.
    ASSERT_EQ(fs({"quantize", "-q", file, directory / "again.gguf", "--dtype", dtype}).code, 0);
    EXPECT_EQ(read_text(directory / "again.gguf"), read_text(file));
  }
}

TEST(Quantize, Q8_0IsTheDefault) {
  const TemporaryDirectory directory;
  ASSERT_EQ(fs({"quantize", "-q", tiny_model(), directory / "a.gguf"}).err, "");
  ASSERT_EQ(fs({"quantize", "-q", tiny_model(), directory / "b.gguf", "--dtype", "q8_0", "-t", "1"}).err, "");
  EXPECT_EQ(read_text(directory / "a.gguf"), read_text(directory / "b.gguf"));
}

TEST(Quantize, HasTheTokenizerAndTheKeysOfLlamaCppsConverter) {
  const TemporaryDirectory directory;
  const std::string file = directory / "tiny.gguf";
  ASSERT_EQ(fs({"quantize", "-q", tiny_model() + "/", file}).code, 0);
  const std::vector<std::string> texts = {"naïve 12345 <|im_start|>user\n  Zwölf ’tis\t\t<think>x</think>",
                                          read_text(FS_SOURCE_DIR "/README.md")};
  for (const std::string& text : texts) {
    const Outcome want = fs({"tokenize", "-q", "--model", tiny_model(), "--stdin"}, text);
    EXPECT_EQ(fs({"tokenize", "-q", "--model", file, "--stdin"}, text).out, want.out);
    EXPECT_GT(want.out.size(), 20U);
  }
  const Json report = inspect(file);
  const Json& metadata = report["gguf"]["metadata"];
  const Json want = {{"general.architecture", "qwen3"},
                     {"general.type", "model"},
                     {"general.name", "tiny"},
                     {"general.file_type", 7},
                     {"general.quantization_version", 2},
                     {"qwen3.block_count", 5},
                     {"qwen3.context_length", 2048},
                     {"qwen3.embedding_length", 128},
                     {"qwen3.feed_forward_length", 384},
                     {"qwen3.attention.head_count", 4},
                     {"qwen3.attention.head_count_kv", 2},
                     {"qwen3.attention.key_length", 64},
                     {"qwen3.attention.value_length", 64},
                     {"qwen3.vocab_size", 2176},
                     {"tokenizer.ggml.model", "gpt2"},
                     {"tokenizer.ggml.pre", "qwen2"},
                     {"tokenizer.ggml.eos_token_id", 2050},
                     {"tokenizer.ggml.padding_token_id", 2048},
                     {"tokenizer.ggml.bos_token_id", 2048},
                     {"tokenizer.ggml.add_bos_token", false}};
  for (const auto& [key, value] : want.items()) EXPECT_EQ(metadata[key], value) << key;
  for (const char* key :
       {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges",
        "tokenizer.chat_template", "qwen3.rope.freq_base", "qwen3.attention.layer_norm_rms_epsilon"}) {
    EXPECT_TRUE(metadata.contains(key)) << key;
  }
  EXPECT_EQ(report["config"], inspect(tiny_model())["config"]);
  EXPECT_EQ(report["eos_token_ids"].get<std::set<int>>(),
            inspect(tiny_model())["eos_token_ids"].get<std::set<int>>());
  std::map<std::string, std::string> dtypes;
  for (const auto& tensor : report["tensors"]) dtypes[tensor["name"]] = tensor["dtype"];
  EXPECT_EQ(dtypes["token_embd.weight"], "Q8_0");
  EXPECT_EQ(dtypes["blk.4.ffn_down.weight"], "Q8_0");
  EXPECT_EQ(dtypes["blk.0.attn_q_norm.weight"], "F32");
  EXPECT_EQ(dtypes["output_norm.weight"], "F32");
  EXPECT_FALSE(dtypes.contains("output.weight")) << "tied";
  EXPECT_EQ(dtypes.size(), 2 + 5 * 11U);
}

TEST(Quantize, AModelWithoutATokenizerSaysSo) {
  const TemporaryDirectory directory;
  const std::string file = directory / "odd.gguf";
  const Outcome outcome = fs({"quantize", odd, file, "--dtype", "bf16"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("no tokenizer"), std::string::npos) << outcome.err;
  EXPECT_EQ(logits(file, {"--tokens", "1,2,3"}), logits(odd, {"--tokens", "1,2,3"}));
  EXPECT_EQ(fs({"generate", "-q", "--model", file, "--tokens", "5", "-n", "20"}).out,
            fs({"generate", "-q", "--model", odd, "--tokens", "5", "-n", "20"}).out);
  const Json metadata = inspect(file)["gguf"]["metadata"];
  EXPECT_EQ(metadata["tokenizer.ggml.model"], "no_vocab");
  EXPECT_EQ(metadata["qwen3.vocab_size"], 347);  // how llama.cpp knows how many ids there are
  EXPECT_EQ(metadata["general.name"], odd);
}

TEST(Quantize, SaysWhichRowsAreNoWholeBlocks) {
  const TemporaryDirectory directory;
  const Outcome outcome = fs({"quantize", odd, directory / "odd.gguf"});
  expect_error(outcome, 2, "model.embed_tokens.weight");
  EXPECT_NE(outcome.err.find("72"), std::string::npos) << outcome.err;
  EXPECT_EQ(entries(directory.path()), 0U);
}

TEST(Quantize, OverwritesOnlyWhenForced) {
  const TemporaryDirectory directory;
  const std::string file = directory / "m.gguf";
  write_text(file, "precious");
  expect_error(fs({"quantize", tiny_model(), file}), 1, "--force");
  EXPECT_EQ(read_text(file), "precious");
  EXPECT_EQ(fs({"quantize", "-q", tiny_model(), file, "--force"}).err, "");
  EXPECT_TRUE(read_text(file).starts_with("GGUF"));
  EXPECT_EQ(entries(directory.path()), 1U);
}

TEST(Quantize, NeverWritesOntoTheModel) {
  const TemporaryDirectory directory;
  const std::string file = directory / "m.gguf", link = directory / "link.gguf";
  ASSERT_EQ(fs({"quantize", "-q", tiny_model(), file}).code, 0);
  const std::string before = read_text(file);
  files::create_symlink(file, link);
  for (const std::string& target : {file, link, directory / "./m.gguf"}) {
    expect_error(fs({"quantize", file, target, "--force"}), 2, "the model itself");
  }
  EXPECT_EQ(read_text(file), before);
  EXPECT_TRUE(files::is_symlink(link));
}

TEST(Quantize, RefusesNamesThatItCannotWrite) {
  const TemporaryDirectory directory;
  expect_error(fs({"quantize", tiny_model(), directory / "m.bin"}), 2, ".gguf");
  expect_error(fs({"quantize", tiny_model(), directory / "no/m.gguf"}), 1, "no/m.gguf: cannot create");
  files::create_directory(directory / "d.gguf");
  expect_error(fs({"quantize", tiny_model(), directory / "d.gguf", "--force"}), 1, "is a directory");
  expect_error(fs({"quantize", tiny_model()}), 2, "OUT");
  expect_error(fs({"quantize", tiny_model(), directory / "m.gguf", "--dtype", "int4"}), 2, "int4");
  expect_error(fs({"quantize", directory / "none", directory / "m.gguf"}), 3, "none");
  EXPECT_EQ(entries(directory.path()), 1U);
}

TEST(Quantize, ADamagedFileExitsWith3) {
  const TemporaryDirectory directory;
  const std::string file = directory / "m.gguf";
  ASSERT_EQ(fs({"quantize", "-q", tiny_model(), file}).code, 0);
  const std::string good = read_text(file);
  for (const std::size_t size : {good.size() - 33, good.size() / 2, std::size_t{1000}, std::size_t{7}}) {
    write_text(file, std::string_view(good).substr(0, size));
    expect_error(fs({"logits", "-q", "--model", file, "--tokens", "1"}), 3, "m.gguf");
    expect_error(fs({"tokenize", "-q", "--model", file, "text"}), 3, "m.gguf");
    expect_error(fs({"eval", "-q", "--model", file, "--tokens", "1,2"}), 3, "m.gguf");
    expect_error(fs({"quantize", "-q", file, directory / "again.gguf"}), 3, "m.gguf");
    EXPECT_EQ(fs({"inspect", file}).code, 3);
  }
  EXPECT_EQ(entries(directory.path()), 1U);
}

TEST(Quantize, AFullDiskLeavesNothing) {
  // A limit on the size of files stands for it: the write fails in the same way.
  const TemporaryDirectory directory;
  Command command;
  command.program = "/bin/sh";
  command.args = {"-c", "ulimit -f 300; exec \"$0\" quantize -q \"$1\" \"$2\"", FS_BINARY_DIR "/bin/fs",
                  tiny_model(), directory / "m.gguf"};
  expect_error(run(command), 1, "m.gguf: cannot write");
  EXPECT_EQ(entries(directory.path()), 0U);

  const std::string file = directory / "m.gguf";
  write_text(file, "precious");
  command.args[1] = "ulimit -f 300; exec \"$0\" quantize -q --force \"$1\" \"$2\"";
  expect_error(run(command), 1, "m.gguf: cannot write");
  EXPECT_EQ(read_text(file), "precious");
  EXPECT_EQ(entries(directory.path()), 1U);
}

TEST(Quantize, CtrlCLeavesNothing) {
  const TemporaryDirectory directory;
  Command command;
  command.args = {"quantize", "synthetic:qwen3-0.6b", directory / "m.gguf"};
  command.interrupt_when = [begin = std::chrono::steady_clock::now()](const std::string&) {
    return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(500);
  };
  expect_error(run(command), 130, "interrupted");
  EXPECT_EQ(entries(directory.path()), 0U);
}

}  // namespace
}  // namespace cli_test

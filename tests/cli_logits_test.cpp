// `fs logits`: the shape of its output, its files, and that its numbers agree with each other.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli_process.h"
#include "model/safetensors.h"

namespace cli_test {
namespace {

using Json = nlohmann::json;

constexpr const char* odd = "synthetic:tiny-odd";

std::vector<float> values(const fs::model::Tensor& tensor) {
  std::vector<float> result(tensor.bytes.size() / sizeof(float));
  std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

/// `fs logits` on tiny-odd, as JSON.
Json logits(std::vector<std::string> args) {
  args.insert(args.begin(), {"logits", "--model", odd, "--json"});
  const Outcome outcome = fs(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return Json::parse(outcome.out);
}

TEST(Logits, PrintsExactlyTheAgreedShape) {
  const Outcome outcome = fs({"logits", "--model", tiny_model(), "The capital of France is"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const std::regex shape(
      "prompt tokens: (\\d+) · residual \\[seq=\\1, H=\\d+\\]\n"
      "next-token logits: \\[V=\\d+\\] · top 10\n"
      "  TOKEN ID        LOGIT  DECODED PIECE\n"
      "( {0,9}\\d+ +-?\\d+\\.\\d{6}  \".*\"\n){10}");
  EXPECT_TRUE(std::regex_match(outcome.out, shape)) << outcome.out;
  const std::string first_row = outcome.out.substr(outcome.out.find("PIECE\n") + 6);
  EXPECT_EQ(first_row.find('.'), 10U + 14U - 7U) << first_row;  // right-aligned columns of 10 and 14
  EXPECT_EQ(first_row.find("\" Paris\""), 26U) << first_row;
}

TEST(Logits, WithoutATokenizerPiecesAreDashes) {
  const Outcome outcome = fs({"logits", "--model", odd, "--tokens", "1 2,3", "--top", "2"});
  const std::regex shape(
      "prompt tokens: 3 · residual \\[seq=3, H=72\\]\n"
      "next-token logits: \\[V=347\\] · top 2\n"
      "  TOKEN ID        LOGIT  DECODED PIECE\n"
      "( {0,9}\\d+ +-?\\d+\\.\\d{6}  -\n){2}");
  EXPECT_TRUE(std::regex_match(outcome.out, shape)) << outcome.out;
  expect_error(fs({"logits", "--model", odd, "text"}), 2, "give token ids with --tokens");
}

TEST(Logits, JsonAgreesWithTheFile) {
  const TemporaryDirectory directory;
  const std::string file = directory / "logits.safetensors";
  const Json json = logits({"--tokens", "5,6,7", "--top", "347", "--out", file});
  const auto stored = fs::model::open_safetensors(file);
  ASSERT_EQ(stored.tensors.size(), 1U);
  EXPECT_EQ(stored.tensors[0].name, "logits");
  EXPECT_EQ(stored.tensors[0].shape, (std::vector<std::size_t>{1, 347}));
  const auto row = values(stored.tensors[0]);
  ASSERT_EQ(json["top"].size(), 347U);
  double sum = 0;
  float last = INFINITY;
  for (const auto& entry : json["top"]) {
    EXPECT_EQ(entry["logit"].get<float>(), row.at(entry["id"].get<std::size_t>()));
    EXPECT_LE(entry["logit"].get<float>(), last);
    EXPECT_TRUE(entry["piece"].is_null());
    last = entry["logit"].get<float>();
    sum += std::exp(entry["logit"].get<double>());
  }
  EXPECT_NEAR(json["logsumexp"].get<double>(), std::log(sum), 1e-12);
  EXPECT_EQ(json["max"], json["top"].front()["logit"]);
  EXPECT_EQ(json["min"], json["top"].back()["logit"]);
  EXPECT_EQ(json["prompt_ids"], Json::array({5, 6, 7}));
  EXPECT_EQ(json["vocab_size"], 347);
  EXPECT_EQ(json["hidden"], 72);
  EXPECT_EQ(json["model"], odd);
  EXPECT_FALSE(json.contains("candidates"));
  EXPECT_EQ(logits({"--tokens", "5,6,7", "--backend", "reference"})["backend"], "reference");
}

TEST(Logits, AllPositionsAreThoseOfEveryPrefix) {
  const TemporaryDirectory directory;
  const std::string all = directory / "all.safetensors", one = directory / "one.safetensors";
  const Json json = logits({"--tokens", "5,6,7", "--all-positions", "--out", all});
  logits({"--tokens", "5,6", "--out", one});
  const auto every = fs::model::open_safetensors(all), prefix = fs::model::open_safetensors(one);
  EXPECT_EQ(every.tensors[0].shape, (std::vector<std::size_t>{3, 347}));
  const auto rows = values(every.tensors[0]), row = values(prefix.tensors[0]);
  double sum = 0;
  for (std::size_t i = 0; i < 347; ++i) {
    EXPECT_NEAR(rows[347 + i], row[i], 1e-4 + 1e-4 * std::abs(row[i]));
    sum += std::exp(static_cast<double>(rows[347 + i]));
  }
  ASSERT_EQ(json["positions"].size(), 3U);
  EXPECT_TRUE(json["positions"][0]["logprob"].is_null());
  const double second = json["positions"][1]["logprob"], third = json["positions"][2]["logprob"];
  EXPECT_NEAR(third, static_cast<double>(rows[347 + 7]) - std::log(sum), 1e-9);
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(-(second + third) / 2), 1e-9);
  EXPECT_TRUE(logits({"--tokens", "5", "--all-positions"})["perplexity"].is_null());
  const Outcome text = fs({"logits", "--model", odd, "--tokens", "5,6,7", "--all-positions"});
  EXPECT_TRUE(
      std::regex_search(text.out, std::regex("perplexity: \\d+\\.\\d{6} · mean log-probability -\\d")));
}

TEST(Logits, SamplingFlagsShowWhatWouldBeDrawn) {
  const Json json = logits({"--tokens", "5,6,7", "--temp", "0.5", "--topk", "3", "--top", "4"});
  ASSERT_EQ(json["candidates"].size(), 3U);
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["candidates"][i]["id"], json["top"][i]["id"]);
    sum += json["candidates"][i]["probability"].get<double>();
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  const double gap = json["top"][0]["logit"].get<double>() - json["top"][1]["logit"].get<double>();
  EXPECT_NEAR(
      json["candidates"][0]["probability"].get<double>() / json["candidates"][1]["probability"].get<double>(),
      std::exp(gap / 0.5), 1e-6);
  EXPECT_EQ(logits({"--tokens", "5", "--topk", "3"})["candidates"].size(), 1U);  // greedy

  const Outcome text =
      fs({"logits", "--model", odd, "--tokens", "5,6,7", "--temp", "0.5", "--topk", "3", "--top", "4"});
  EXPECT_NE(text.out.find("  TOKEN ID        LOGIT  PROBABILITY  DECODED PIECE\n"), std::string::npos);
  EXPECT_TRUE(std::regex_search(text.out, std::regex("  0\\.000000  -\n$")))
      << text.out;  // the fourth is cut
}

TEST(Logits, RecordWritesTheChosenTaps) {
  const TemporaryDirectory directory;
  const std::string file = directory / "taps.safetensors";
  const auto names = [&](std::vector<std::string> args) {
    args.insert(args.end(), {"--tokens", "5,6,7", "--record", file});
    logits(args);
    std::vector<std::string> result;
    for (const auto& tensor : fs::model::open_safetensors(file).tensors) result.push_back(tensor.name);
    return result;
  };
  EXPECT_EQ(names({"--taps", "embed,block_out", "--layers", "0,2"}),
            (std::vector<std::string>{"embed", "layers.0.block_out", "layers.2.block_out"}));
  EXPECT_EQ(names({"--taps", "q", "--layers", "0-1"}),
            (std::vector<std::string>{"layers.0.q", "layers.1.q"}));
  EXPECT_EQ(names({}).size(), 3U + 3U * 9U);  // embed, final_norm, logits; nine a layer
  EXPECT_EQ(fs::model::open_safetensors(file).tensors[1].shape, (std::vector<std::size_t>{3, 72}));

  for (const char* layers : {"3", "1-", "-1", "2-1", "0,,1", "x"}) {
    expect_error(fs({"logits", "--model", odd, "--tokens", "5", "--record", file, "--layers", layers}), 2,
                 "--layers");
  }
  expect_error(fs({"logits", "--model", odd, "--tokens", "5", "--record", file, "--taps", "mlp"}), 2,
               "mlp_act");
  expect_error(fs({"logits", "--model", odd, "--tokens", "5", "--record", directory / "no/where"}), 1,
               "no/where");
}

TEST(Logits, RefusesBeforeWeightsLoad) {
  const TemporaryDirectory directory;
  const std::string model = directory / "odd";
  ASSERT_EQ(fs({"synth", "tiny-odd", model, "-q"}).code, 0);
  write_text(model + "/model.safetensors", "not weights");
  expect_error(fs({"logits", "--model", model, "--tokens", "1,2,3", "--ctx", "2"}), 2, "3 tokens");
  expect_error(fs({"logits", "--model", model, "--tokens", "1,400"}), 2, "token id 400");
  expect_error(fs({"generate", "--model", model, "--tokens", "1,2", "--ctx", "2"}), 2, "no room");
  expect_error(fs({"generate", "--model", model, "--tokens", "1,2", "--temp", "-1"}), 2, "--temp");
  expect_error(fs({"logits", "--model", model, "--tokens", "1,2"}), 3, "model.safetensors");
}

TEST(Logits, CtrlCStopsTheLoad) {
  Command command;
  command.args = {"logits", "--model", "synthetic:qwen3-4b", "--tokens", "1"};
  command.interrupt_when = [begin = std::chrono::steady_clock::now()](const std::string&) {
    return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(300);
  };
  command.timeout = std::chrono::seconds(20);
  expect_error(run(command), 130, "interrupted");
}

TEST(FaultyFs, ChangesOneWeightInMemory) {
  const TemporaryDirectory directory;
  Command command;
  const auto all_logits = [&] {
    const std::string file = directory / "logits.safetensors";
    command.args = {"logits", "--model", odd, "--tokens", "0,1,2,3", "--out", file};
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return values(fs::model::open_safetensors(file).tensors.at(0));
  };
  const std::vector<float> right = all_logits();
  command.program = FS_BINARY_DIR "/bin/fs_faulty";
  for (const char* fault : {"down_proj", "lm_head"}) {
    command.environment["FS_FAULT"] = fault;
    const std::vector<float> wrong = all_logits();
    float worst = 0;
    for (std::size_t i = 0; i < right.size(); ++i) worst = std::max(worst, std::abs(wrong[i] - right[i]));
    EXPECT_GT(worst, 1e-3F) << fault;
  }
}

}  // namespace
}  // namespace cli_test

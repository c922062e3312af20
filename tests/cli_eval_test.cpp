// `fs eval`: its numbers are those of `fs logits`, put together by hand here.
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli_process.h"
#include "model/safetensors.h"

namespace cli_test {
namespace {

using Json = nlohmann::json;

constexpr const char* text =
    "The capital of France is Paris. The capital of Scotland is Edinburgh. Two and two make four, and the "
    "sun "
    "rises in the east.";

Json eval(std::vector<std::string> args, std::optional<std::string> input = std::nullopt) {
  args.insert(args.begin(), {"eval", "--json", "-q"});
  const Outcome outcome = fs(args, input);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return Json::parse(outcome.out, nullptr, false);
}

std::vector<int> ids_of_text() {
  return Json::parse(fs({"tokenize", "-q", "--json", text}).out)["ids"].get<std::vector<int>>();
}

std::string joined(const std::vector<int>& ids) { return fmt::format("{}", fmt::join(ids, ",")); }

/// [tokens][vocab_size] logits at every position.
std::vector<std::vector<float>> all_logits(const std::string& tokens, std::vector<std::string> flags) {
  const TemporaryDirectory directory;
  const std::string file = directory / "logits.safetensors";
  flags.insert(flags.begin(), {"logits", "-q", "--all-positions", "--tokens", tokens, "--out", file});
  EXPECT_EQ(fs(flags).code, 0);
  const auto stored = fs::model::open_safetensors(file);
  const auto& tensor = stored.tensors.at(0);
  std::vector<std::vector<float>> rows(tensor.shape[0], std::vector<float>(tensor.shape[1]));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(rows[i].data(), tensor.bytes.data() + i * tensor.shape[1] * sizeof(float),
                tensor.shape[1] * sizeof(float));
  }
  return rows;
}

std::vector<long double> log_softmax(const std::vector<float>& logits) {
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  std::vector<long double> result;
  for (const float logit : logits) result.push_back(logit - std::log(sum));
  return result;
}

TEST(Eval, PerplexityIsThatOfLogits) {
  const Json want = Json::parse(fs({"logits", "-q", "--all-positions", "--json", text}).out);
  const TemporaryDirectory directory;
  write_text(directory / "text.txt", std::string(text) + "\n");
  for (const Json& got :
       {eval({directory / "text.txt"}), eval({"-f", directory / "text.txt"}), eval({"--stdin"}, text),
        eval({"-"}, text), eval({"--tokens", joined(ids_of_text())})}) {
    EXPECT_NEAR(got["perplexity"].get<double>(), want["perplexity"].get<double>(), 1e-6);
    EXPECT_EQ(got["tokens"], want["prompt_ids"].size());
    EXPECT_EQ(got["scored"].get<std::size_t>(), want["prompt_ids"].size() - 1);
    EXPECT_EQ(got["windows"], 1);
    EXPECT_EQ(got["ctx"], 512);
    EXPECT_FALSE(got.contains("against"));
    EXPECT_FALSE(got.contains("kl"));
  }
}

TEST(Eval, EveryWindowStartsAnew) {
  const std::vector<int> ids = ids_of_text();
  constexpr std::size_t window = 7;
  ASSERT_GT(ids.size(), 3 * window);
  ASSERT_NE(ids.size() % window, 0U);
  double sum = 0;
  std::size_t scored = 0;
  for (std::size_t begin = 0; begin < ids.size(); begin += window) {
    const std::size_t end = std::min(ids.size(), begin + window);
    const std::vector<int> part(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                ids.begin() + static_cast<std::ptrdiff_t>(end));
    const auto rows = all_logits(joined(part), {});
    for (std::size_t i = 0; i + 1 < part.size(); ++i, ++scored) {
      sum += static_cast<double>(log_softmax(rows[i])[static_cast<std::size_t>(part[i + 1])]);
    }
  }
  const Json got = eval({"--ctx", "7", "--tokens", joined(ids)});
  EXPECT_EQ(got["scored"], scored);
  EXPECT_EQ(got["windows"], (ids.size() + window - 1) / window);
  EXPECT_NEAR(got["mean_logprob"].get<double>(), sum / static_cast<double>(scored), 1e-6);
  EXPECT_NE(got["perplexity"], eval({"--tokens", joined(ids)})["perplexity"]);
}

TEST(Eval, AgainstItselfNothingDiffers) {
  const Json got = eval({"--stdin", "--against", "cpu", "--backend", "cpu", "--ctx", "16"}, text);
  EXPECT_EQ(got["kl"]["mean"], 0.0);
  EXPECT_EQ(got["kl"]["max"], 0.0);
  EXPECT_EQ(got["top1"]["share"], 1.0);
  EXPECT_EQ(got["top1"]["positions"], got["tokens"]);
  EXPECT_EQ(got["against"]["perplexity"], got["perplexity"]);
}

TEST(Eval, DivergenceIsThatOfTheTwoLogits) {
  const std::vector<int> ids = ids_of_text();
  const std::string tokens = joined(ids);
  const auto p = all_logits(tokens, {"--backend", "reference"});
  const auto q = all_logits(tokens, {"--backend", "cpu", "--dtype", "int4"});
  long double sum = 0, most = -1;
  std::size_t worst = 0, agreeing = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto log_p = log_softmax(p[i]), log_q = log_softmax(q[i]);
    long double kl = 0;
    for (std::size_t id = 0; id < log_p.size(); ++id) kl += std::exp(log_p[id]) * (log_p[id] - log_q[id]);
    sum += kl;
    if (kl > most) {
      most = kl;
      worst = i;
    }
    agreeing += std::max_element(log_p.begin(), log_p.end()) - log_p.begin() ==
                std::max_element(log_q.begin(), log_q.end()) - log_q.begin();
  }
  // The dtype that --against leaves out is the stored one, whatever --dtype says.
  const Json got =
      eval({"--tokens", tokens, "--backend", "cpu", "--dtype", "int4", "--against", "reference"});
  const double mean = static_cast<double>(sum) / static_cast<double>(ids.size());
  EXPECT_GT(mean, 1e-5) << "int4 loses something";
  EXPECT_NEAR(got["kl"]["mean"].get<double>(), mean, 1e-4 * mean);
  EXPECT_NEAR(got["kl"]["max"].get<double>(), static_cast<double>(most), 1e-4 * static_cast<double>(most));
  EXPECT_EQ(got["kl"]["max_position"], worst);
  EXPECT_EQ(got["top1"]["agreeing"], agreeing);
  EXPECT_EQ(got["top1"]["positions"], ids.size());
  EXPECT_EQ(got["against"]["dtype"], "auto");
  EXPECT_EQ(got["dtype"], "int4");
  const Json q8 =
      eval({"--tokens", tokens, "--backend", "cpu", "--dtype", "q8_0", "--against", "reference:bf16"});
  EXPECT_LT(q8["kl"]["mean"].get<double>(), mean / 5) << "Q8_0 loses far less";
  EXPECT_GT(q8["kl"]["mean"].get<double>(), 0);
}

TEST(Eval, PrintsATable) {
  const Outcome outcome = fs({"eval", "-q", "--model", "synthetic:tiny-odd", "--tokens", "1,2,3,4,5", "--ctx",
                              "3", "--backend", "cpu", "--dtype", "q8_0", "--against", "reference"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::regex shape(
      "text: 5 tokens in 2 windows of at most 3 · 3 predicted\n"
      "perplexity      \\d+\\.\\d{6} · mean log-probability -\\d+\\.\\d{6} · cpu:q8_0, synthetic:tiny-odd\n"
      "  against       \\d+\\.\\d{6} · mean log-probability -\\d+\\.\\d{6} · reference:auto, "
      "synthetic:tiny-odd\n"
      "KL divergence   mean [0-9.e-]+ · max [0-9.e-]+ nats, after token [0-4] -\n"
      "top-1 agreement [0-9.]+ % · [0-5] of 5 positions\n");
  EXPECT_TRUE(std::regex_match(outcome.out, shape)) << outcome.out;
}

TEST(Eval, RefusesWhatItCannotMeasure) {
  expect_error(fs({"eval", "-q", "--tokens", "1"}), 2, "1 token");
  expect_error(fs({"eval", "-q", "--stdin"}, ""), 2, "0 tokens");
  expect_error(fs({"eval", "-q", "--tokens", "1,2,3", "--ctx", "1"}), 2, "--ctx");
  expect_error(fs({"eval", "-q", "--tokens", "1,2,99999"}), 2, "99999");
  expect_error(fs({"eval", "-q", "--tokens", "1,2", "--ctx", "4096"}), 2, "4096");
  expect_error(fs({"eval", "-q", "/nonexistent"}), 2, "/nonexistent");
  expect_error(fs({"eval", "-q", "--model", "synthetic:tiny-odd", "--stdin"}, "text"), 2, "--tokens");
  expect_error(fs({"eval", "-q", "--tokens", "1,2", "--against", "golden"}), 2, "--against golden");
  expect_error(fs({"eval", "-q", "--tokens", "1,2", "--against", "cpu:q9"}), 2, "q9");
  expect_error(fs({"eval", "-q", "--tokens", "1,2", "--against", "cpu,model=synthetic:tiny-odd"}), 2,
               "different shapes");
}

}  // namespace
}  // namespace cli_test

// `fs generate`: text, stops, seeds, prompts files, chat, interrupts.
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "cli_process.h"

namespace cli_test {
namespace {

using Json = nlohmann::json;

constexpr const char* odd = "synthetic:tiny-odd";
constexpr const char* france = "The capital of France is";

/// `fs generate` on the bundled model with these arguments.
Outcome generate(std::vector<std::string> args, std::optional<std::string> input = std::nullopt) {
  args.insert(args.begin(), {"generate", "--model", tiny_model()});
  return fs(args, std::move(input));
}

Json generate_json(std::vector<std::string> args) {
  args.emplace_back("--json");
  const Outcome outcome = generate(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out);
}

TEST(Generate, ContinuesWithoutThePrompt) {
  const Outcome outcome = generate({france});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with(" Paris")) << outcome.out;
  EXPECT_TRUE(outcome.out.ends_with('\n'));
  const std::regex statistics(
      "fs: seed 0 \\(greedy\\) · \\d+ prompt tokens · \\d+ generated · first token \\d+\\.\\d{3} s"
      "( · \\d+\\.\\d\\d tok/s)? · stop: (eos|length)\n");
  EXPECT_TRUE(std::regex_match(outcome.err, statistics)) << outcome.err;
  EXPECT_EQ(generate({"-q", france}).err, "");
}

TEST(Generate, EveryWayToGiveThePrompt) {
  const std::string expected = generate({"-q", "-n", "4", france}).out;
  EXPECT_EQ(generate({"-q", "-n", "4", "-p", france}).out, expected);
  EXPECT_EQ(generate({"-q", "-n", "4", "The", "capital", "of", "France", "is"}).out, expected);
  EXPECT_EQ(generate({"-q", "-n", "4", "-"}, france).out, expected);
  EXPECT_EQ(generate({"-q", "-n", "4"}, france + std::string("\n")).out, expected);  // as echo gives it
  const TemporaryDirectory directory;
  write_text(directory / "prompt", france + std::string("\n"));
  EXPECT_EQ(generate({"-q", "-n", "4", "-f", directory / "prompt"}).out, expected);
  std::string ids = fs({"tokenize", "-q", france}).out;
  EXPECT_EQ(generate({"-q", "-n", "4", "--tokens", ids}).out, expected);
  expect_error(generate({""}), 2, "empty");
}

TEST(Generate, JsonSaysEverything) {
  const Json json = generate_json({"-n", "4", "--ignore-eos", france});
  EXPECT_EQ(json["ids"].size(), 4U);
  EXPECT_EQ(json["pieces"].size(), 4U);
  EXPECT_EQ(json["logprobs"].size(), 4U);
  for (const auto& logprob : json["logprobs"]) EXPECT_LE(logprob.get<double>(), 0);
  EXPECT_EQ(json["stop_reason"], "length");
  EXPECT_EQ(json["seed"], 0);
  EXPECT_GT(json["timing"]["first_token_seconds"].get<double>(), 0);
  EXPECT_EQ(json["text"].get<std::string>() + "\n", generate({"-q", "-n", "4", "--ignore-eos", france}).out);
  // The first log-probability is that of `fs logits`.
  const Json logits = Json::parse(fs({"logits", "--model", tiny_model(), "--json", france}).out);
  EXPECT_EQ(json["ids"][0], logits["top"][0]["id"]);
  EXPECT_NEAR(json["logprobs"][0].get<double>(),
              logits["top"][0]["logit"].get<double>() - logits["logsumexp"].get<double>(), 1e-6);
}

TEST(Generate, EndsAtEosUnlessItIsIgnored) {
  const Json ended = generate_json({"-n", "-1", france});
  EXPECT_EQ(ended["stop_reason"], "eos");
  const std::size_t length = ended["ids"].size();
  const Json went_on = generate_json({"-n", std::to_string(length + 5), "--ignore-eos", france});
  EXPECT_EQ(went_on["ids"].size(), length + 5);
  // The token itself is an id and a piece, but no text.
  EXPECT_TRUE(went_on["pieces"][length - 1].get<std::string>().starts_with("<|"));
  EXPECT_EQ(went_on["text"].get<std::string>().find("<|"), std::string::npos) << went_on["text"];
  EXPECT_TRUE(went_on["text"].get<std::string>().starts_with(ended["text"].get<std::string>()));
}

TEST(Generate, StopTextsAreNotPrinted) {
  const std::string whole = generate({"-q", "-n", "12", france}).out;
  ASSERT_TRUE(whole.starts_with(" Paris")) << whole;
  EXPECT_EQ(generate({"-q", "--stop", "ris", france}).out, " Pa\n");
  EXPECT_EQ(generate({"-q", "--stop", "nothing of the kind", "--stop", "Par", france}).out, " \n");
  EXPECT_EQ(generate({"-q", "-n", "12", "--stop", "Paradise", france}).out, whole);
  const Outcome outcome = generate({"--stop", "ris", france});
  EXPECT_NE(outcome.err.find("stop: stop \"ris\""), std::string::npos) << outcome.err;
  const Json json = generate_json({"--stop", "ris", france});
  EXPECT_EQ(json["stop_reason"], "stop");
  EXPECT_EQ(json["stop_text"], "ris");
  EXPECT_EQ(json["text"], " Pa");
  expect_error(generate({"--stop", "", france}), 2, "empty stop text");
}

TEST(Generate, TheSeedDecides) {
  const auto answer = [](std::vector<std::string> args) {
    args.insert(args.end(), {"generate", "--model", odd, "--tokens", "1,2", "-n", "12", "--temp", "1.5"});
    std::rotate(args.begin(), args.end() - 9, args.end());
    return fs(args);
  };
  EXPECT_EQ(answer({"--seed", "5", "-q"}).out, answer({"--seed", "5", "-q"}).out);
  EXPECT_NE(answer({"--seed", "5", "-q"}).out, answer({"--seed", "6", "-q"}).out);
  const Outcome random = answer({});
  std::smatch seed;
  ASSERT_TRUE(std::regex_search(random.err, seed, std::regex("seed (\\d+) ·"))) << random.err;
  EXPECT_EQ(answer({"--seed", seed[1].str(), "-q"}).out, random.out);
  EXPECT_NE(answer({}).out, random.out);
}

TEST(Generate, WithoutATokenizerTheAnswerIsIds) {
  const Outcome outcome = fs({"generate", "--model", odd, "--tokens", "1,2", "-n", "3", "-q"});
  EXPECT_TRUE(std::regex_match(outcome.out, std::regex("\\d+ \\d+ \\d+\n"))) << outcome.out;
  EXPECT_EQ(fs({"generate", "--model", odd, "--tokens", "1,2", "-n", "0", "-q"}).out, "\n");
}

TEST(Generate, EndsWhenTheContextIsFull) {
  const Outcome outcome =
      fs({"generate", "--model", odd, "--tokens", "1,2", "-n", "-1", "--ctx", "6", "--json", "-q"});
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["ids"].size(), 4U);
  EXPECT_EQ(json["stop_reason"], "context");
}

TEST(Generate, ChatAppliesTheTemplate) {
  const Json json = generate_json({"--chat", "--no-think", "--system", "Be brief.", "-n", "1", "Hi"});
  std::string ids;
  for (const auto& id : json["prompt_ids"]) ids += id.dump() + " ";
  EXPECT_EQ(fs({"detokenize", "--model", tiny_model(), ids}).out,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
            "<think>\n\n</think>\n\n\n");
  EXPECT_NE(generate_json({"--chat", "-n", "1", "Hi"})["prompt_ids"],
            generate_json({"--chat", "--no-think", "-n", "1", "Hi"})["prompt_ids"]);
  EXPECT_EQ(generate_json({"--chat", "-n", "1", "Hi"})["prompt_ids"],
            generate_json({"--chat", "--think", "-n", "1", "Hi"})["prompt_ids"]);
  expect_error(generate({"--chat", "--tokens", "1,2"}), 2, "not to token ids");
}

TEST(Prompts, OneObjectALineInOrder) {
  const TemporaryDirectory directory;
  const std::string file = directory / "prompts.jsonl";
  write_text(file,
             "{\"prompt\": \"The capital of France is\", \"n\": 2}\n"
             "\n"
             "{\"tokens\": [1, 2], \"n\": 3, \"temp\": 1.0, \"seed\": 9, \"ignore_eos\": true}\n"
             "{\"prompt\": \"The capital of France is\", \"stop\": [\"ris\"]}\n"
             "{\"prompt\": \"Hi\", \"chat\": true, \"think\": false, \"system\": \"x\"}");
  const Outcome outcome = generate({"--prompts", file, "-n", "4"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<Json> lines;
  std::istringstream stream(outcome.out);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0]["ids"].size(), 2U);
  EXPECT_EQ(lines[1]["ids"].size(), 3U);
  EXPECT_EQ(lines[1]["seed"], 9);
  EXPECT_EQ(lines[2]["text"], " Pa");
  EXPECT_LE(lines[3]["ids"].size(), 4U);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 5) << outcome.err;
  EXPECT_NE(outcome.err.find("fs: 4 prompts, 4 at once · "), std::string::npos) << outcome.err;
  // Each line is what it would be alone.
  EXPECT_EQ(lines[0]["ids"], generate_json({"-n", "2", france})["ids"]);
  EXPECT_EQ(generate({"--prompts", "-", "-q", "-n", "2"}, "{\"prompt\": \"The capital of France is\"}").code,
            0);
}

TEST(Prompts, MayBeginWithAByteOrderMark) {
  const std::string line = "{\"prompt\": \"The capital of France is\", \"n\": 2}\n", mark = "\xEF\xBB\xBF";
  const auto ids = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? Json::parse(outcome.out)["ids"] : Json();
  };
  const Json want = ids(generate({"--prompts", "-"}, line));
  EXPECT_EQ(ids(generate({"--prompts", "-"}, mark + line)), want);
  EXPECT_EQ(ids(generate({"--prompts", "-"}, mark + "\n" + line)), want);
  expect_error(generate({"--prompts", "-"}, mark), 2, "no prompts in it");
  expect_error(generate({"--prompts", "-"}, line + mark + line), 2, "standard input:2: ");
  expect_error(generate({"--prompts", "-"}, mark + "{\"colour\": 1}"), 2, "standard input:1: unknown key");
}

TEST(Prompts, ABadLineIsNamedBeforeAnythingRuns) {
  const TemporaryDirectory directory;
  const std::string file = directory / "prompts.jsonl";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{\"prompt\": \"a\", \"colour\": 1}", "colour"},
      {"{\"prompt\": 1}", "\"prompt\" is 1"},
      {"{\"prompt\": \"a\"", "not valid JSON"},
      {"[1]", "expected a JSON object"},
      {"{}", "no \"prompt\""},
      {"{\"prompt\": \"a\", \"tokens\": [1]}", "both"},
      {"{\"tokens\": [-1]}", "token ids"},
      {"{\"tokens\": [99999999]}", "99999999"},
      {"{\"tokens\": [99999999999]}", "99999999999"},
      {"{\"tokens\": []}", "empty"},
      {"{\"prompt\": \"a\", \"n\": -2}", "\"n\" is -2"},
      {"{\"prompt\": \"a\", \"temp\": -1}", "2: \"temp\" is -1, expected a finite number of at least 0"},
      {"{\"prompt\": \"a\", \"temperature\": 1e99}", "2: \"temperature\" is 1e"},
      {"{\"prompt\": \"a\", \"top_p\": 1.5, \"temp\": 1}",
       "2: \"top_p\" is 1.5, expected a number from 0 to 1"},
      {"{\"prompt\": \"a\", \"minp\": -1}", "2: \"minp\" is -1, expected a number from 0 to 1"},
      {"{\"prompt\": \"a\", \"repeat_penalty\": 0}", "2: \"repeat_penalty\" is 0, expected a finite number"},
      {"{\"prompt\": \"a\", \"presence_penalty\": 3}", "2: \"presence_penalty\" is 3, expected"},
      {"{\"prompt\": \"a\", \"stop\": [\"\"]}", "2: \"stop\": an empty stop"},
      {"{\"prompt\": \"a\", \"system\": \"b\"}", "2: \"system\" is only for a chat"},
      {"{\"tokens\": [1], \"chat\": true}", "2: \"chat\" applies to text"},
      {"{\"prompt\": \"a\", \"seed\": 1.5}", "\"seed\" is 1.5"},
      {"{\"prompt\": \"a\", \"think\": true}", "only for a chat"}};
  for (const auto& [line, needle] : bad) {
    SCOPED_TRACE(line);
    write_text(file, "{\"prompt\": \"a\"}\n" + line + "\n");
    const Outcome outcome = generate({"--prompts", file});
    expect_error(outcome, 2, needle);
    EXPECT_NE(outcome.err.find(file + ":2: "), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("--"), std::string::npos) << outcome.err;
    expect_error(fs({"layer-diff", "--model", tiny_model(), "--prompts", file}), 2, file + ":2: ");
  }
  // What every line would get wrong is the flag's fault.
  write_text(file, "{\"tokens\": [1]}\n");
  expect_error(generate({"--prompts", file, "--temp", "-1"}), 2, "error: --temp is -1");
  expect_error(generate({"--prompts", file, "--stop", ""}), 2, "error: --stop: ");
  expect_error(fs({"layer-diff", "--model", odd, "--prompts", file, "--decode", "9", "--ctx", "1"}), 2,
               file + ":1: the prompt has 1 tokens");
  write_text(file, "{\"prompt\": \"a\"}\n");
  expect_error(
      fs({"generate", "--model", odd, "--prompts", file}), 2,
      file + ":1: \"prompt\": synthetic:tiny-odd has no tokenizer: give \"tokens\": [785, 6722, 315]");
  write_text(file, "\n");
  expect_error(generate({"--prompts", file}), 2, "no prompts");
  expect_error(generate({"--prompts", directory / "none"}), 2, "No such file");
}

TEST(Interrupt, KeepsThePartialAnswer) {
  Command command;
  command.args = {"generate", "--model", odd, "--tokens", "1,2", "-n", "-1", "--backend", "reference"};
  command.interrupt_when = [](const std::string& out) { return out.size() > 30; };
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.code, 130) << outcome.signal;
  EXPECT_TRUE(std::regex_match(outcome.out, std::regex("\\d+( \\d+)+\n"))) << outcome.out;
  EXPECT_NE(outcome.err.find("stop: interrupted\n"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("error"), std::string::npos) << outcome.err;
}

TEST(Interrupt, EndsAPromptsFile) {
  Command command;
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"tokens\": [1, 2], \"n\": 300}\n";
  command.args = {"generate", "--model", odd, "--prompts", "-", "--backend", "reference"};
  command.input = lines;
  command.interrupt_when = [](const std::string& out) { return !out.empty(); };
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.code, 130);
  const std::size_t last = outcome.out.rfind('\n', outcome.out.size() - 2);
  EXPECT_EQ(Json::parse(outcome.out.substr(last == std::string::npos ? 0 : last))["stop_reason"],
            "interrupted");
}

}  // namespace
}  // namespace cli_test

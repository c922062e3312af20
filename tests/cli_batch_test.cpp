// `fs generate` with several prompts at once (--parallel) and with guesses (--speculate): the answers of one
// prompt and one token at a time.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "cli_process.h"

namespace cli_test {
namespace {

using Json = nlohmann::json;

constexpr const char* odd = "synthetic:tiny-odd";

/// What `fs generate --prompts` prints for these lines, without what depends on time and on guesses.
std::vector<Json> answers(const std::string& model, const std::string& prompts,
                          std::vector<std::string> more) {
  std::vector<std::string> args = {"generate", "--model", model, "--prompts", "-", "-q"};
  args.insert(args.end(), more.begin(), more.end());
  const Outcome outcome = fs(args, prompts);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::vector<Json> lines;
  std::istringstream stream(outcome.out);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(Json::parse(line));
    for (const char* key : {"timing", "speculation"}) lines.back().erase(key);
  }
  return lines;
}

std::string line(Json more) { return more.dump() + "\n"; }

/// Prompts that end in every way: after no token, one and many, at an end-of-text token, at a stop text,
/// where the context is full; greedy and drawn, with and without penalties; that repeat themselves and that
/// do not.
std::string tiny_prompts() {
  std::string all;
  for (const char* text :
       {"The capital of France is", "Once upon a time", "Two and two are",
        "The capital of Italy is Rome. The", "one two three one two three one two three one two",
        "1 + 1 = 2\n2 + 2 = 4\n3 + 3 =",
        "The capital of Spain is Madrid.<|endoftext|>The capital of Spain is", "naïve 🙂 naïve 🙂 na",
        "Ben had a ball. Ben had a ball. Ben had a ball. Ben"}) {
    all += line({{"prompt", text}, {"n", 40}});
    all += line({{"prompt", text}, {"n", 30}, {"ignore_eos", true}, {"temp", 0.8}, {"seed", all.size()}});
    all += line({{"prompt", text}, {"n", 30}, {"repeat_penalty", 1.2}, {"presence_penalty", 0.3}});
    all += line(
        {{"prompt", text}, {"n", 24}, {"temp", 1.3}, {"top_k", 40}, {"repeat_penalty", 0.8}, {"seed", 4}});
    all += line({{"prompt", text}, {"n", -1}, {"stop", {".", "and", " is"}}});
  }
  for (const int n : {0, 1, 2}) all += line({{"prompt", "The capital of France is"}, {"n", n}});
  all += line({{"prompt", "What is the capital of Italy?"}, {"chat", true}, {"n", 60}});
  return all;
}

std::string odd_prompts() {
  std::string all;
  for (int i = 1; i < 10; ++i) {
    Json tokens = Json::array();
    for (int j = 0; j < 3 * i * i; ++j) tokens.push_back(i % 2 == 0 ? j % i + 1 : j * 37 % 300 + i);
    all += line({{"tokens", tokens}, {"n", 50}});
    all += line({{"tokens", tokens}, {"n", 20 + i}, {"temp", 0.7}, {"seed", i}});
    all += line({{"tokens", tokens}, {"n", 40}, {"repeat_penalty", 0.7}});  // runs in circles
  }
  return all;
}

TEST(Parallel, AnswersAreThoseOfOnePromptAtATime) {
  for (const auto& [model, prompts] : {std::pair(tiny_model(), tiny_prompts()), {odd, odd_prompts()}}) {
    const auto want = answers(model, prompts, {"-np", "1", "--ctx", "300"});
    ASSERT_EQ(want.size(), static_cast<std::size_t>(std::count(prompts.begin(), prompts.end(), '\n')));
    for (const char* parallel : {"2", "3", "8", "24"}) {
      EXPECT_EQ(answers(model, prompts, {"--parallel", parallel, "--ctx", "300"}), want) << parallel;
    }
    EXPECT_EQ(answers(model, prompts, {"--ctx", "300"}), want);
    EXPECT_EQ(answers(model, prompts, {"-np", "5", "--ctx", "300", "--speculate"}), want);
    EXPECT_EQ(answers(model, prompts, {"-np", "3", "--ctx", "300", "--isa", "portable"}),
              answers(model, prompts, {"-np", "1", "--ctx", "300", "--isa", "portable"}));
  }
}

TEST(Parallel, EveryFormatOfWeightsCacheAndActivations) {
  const std::string prompts = odd_prompts();
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--dtype", "q8_0"}, {"--dtype", "int4", "--act", "int8"}, {"--kv", "f16", "--dtype", "f32"}}) {
    auto one = flags, many = flags, guessed = flags;
    one.insert(one.end(), {"-np", "1"});
    many.insert(many.end(), {"-np", "7"});
    guessed.insert(guessed.end(), {"-np", "1", "--speculate"});
    const auto want = answers(odd, prompts, one);
    EXPECT_EQ(answers(odd, prompts, many), want) << flags[1];
    EXPECT_EQ(answers(odd, prompts, guessed), want) << flags[1];
  }
}

TEST(Parallel, ContinuesTheGoldenPromptsAsHuggingFaceDoes) {
  const Json manifest = Json::parse(read_text(FS_SOURCE_DIR "/golden/manifest.json"));
  for (const auto& [name, model] : {std::pair<std::string, std::string>("tiny", tiny_model()), {odd, odd}}) {
    std::string prompts;
    std::vector<Json> cases;
    for (const Json& one : manifest["cases"]) {
      if (one["kind"] != "greedy" || one["model"] != name) continue;
      cases.push_back(one);
      prompts += line({{"tokens", one["tokens"]}, {"n", one["ids"].size()}, {"ignore_eos", true}});
    }
    ASSERT_FALSE(cases.empty());
    for (const std::vector<std::string>& flags :
         std::vector<std::vector<std::string>>{{"-np", "8"}, {"-np", "2", "--speculate"}}) {
      const auto got = answers(model, prompts, flags);
      ASSERT_EQ(got.size(), cases.size());
      for (std::size_t i = 0; i < cases.size(); ++i) {
        EXPECT_EQ(got[i]["ids"], cases[i]["ids"]) << cases[i]["name"];
      }
    }
  }
}

TEST(Parallel, EveryAnswerIsThatOfARunOfItsOwn) {
  const auto together =
      answers(tiny_model(),
              "{\"prompt\": \"The capital of France is\"}\n{\"prompt\": \"Once upon a time\"}\n"
              "{\"prompt\": \"Two and two are\"}\n",
              {"-n", "20"});
  std::size_t i = 0;
  for (const char* prompt : {"The capital of France is", "Once upon a time", "Two and two are"}) {
    Json alone =
        Json::parse(fs({"generate", "--model", tiny_model(), "-q", "-n", "20", "--json", prompt}).out);
    alone.erase("timing");
    EXPECT_EQ(together.at(i++), alone);
  }
}

TEST(Parallel, BackendsThatShareNothingRunOneAfterAnother) {
  const std::string prompts = "{\"tokens\": [1, 2], \"n\": 3}\n{\"tokens\": [3], \"n\": 4}\n";
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", "--model", odd, "--prompts", "-", "--backend", "reference"});
    return fs(more, prompts);
  };
  EXPECT_NE(run({}).err.find("2 prompts, 1 at once"), std::string::npos);
  EXPECT_NE(run({"-np", "2"}).err.find("2 prompts, 2 at once"), std::string::npos);
  const auto want = answers(odd, prompts, {"--backend", "reference"});
  EXPECT_EQ(answers(odd, prompts, {"--backend", "reference", "-np", "2"}), want);
  const Outcome guessed = run({"--speculate"});
  EXPECT_NE(guessed.err.find("fs: --speculate: the reference backend runs a guess at the price of a token"),
            std::string::npos)
      << guessed.err;
  EXPECT_NE(guessed.out.find("\"speculation\":{\"proposed\":0,\"accepted\":0}"), std::string::npos)
      << guessed.out;
}

TEST(Parallel, WrongUseIsRefused) {
  expect_error(fs({"generate", "--model", odd, "--prompts", "-", "-np", "0"}), 2, "-np: ");
  expect_error(fs({"generate", "--model", odd, "--prompts", "-", "-np", "x"}), 2, "-np: ");
  expect_error(fs({"generate", "--model", odd, "--tokens", "1", "-np", "2"}), 2, "--prompts");
}

TEST(Parallel, CtrlCEndsThoseThatRunAndPrintsThemInOrder) {
  Command command;
  std::string lines;
  for (int i = 0; i < 100; ++i) {
    lines += fmt::format("{{\"tokens\": [1, {}], \"n\": {}}}\n", i + 1, i == 0 ? 1 : 4000);
  }
  command.args = {"generate", "--model", odd, "--prompts", "-", "--backend", "cpu", "-np", "4", "-q"};
  command.input = lines;
  command.interrupt_when = [](const std::string& out) { return !out.empty(); };
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  std::vector<Json> found;
  std::istringstream stream(outcome.out);
  for (std::string line; std::getline(stream, line);) found.push_back(Json::parse(line));
  ASSERT_GE(found.size(), 2U);
  ASSERT_LE(found.size(), 5U);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i]["prompt_ids"][1], i + 1);
    EXPECT_EQ(found[i]["stop_reason"], i == 0 ? "length" : "interrupted");
  }
}

/// `fs generate --json` on the bundled model; guesses are checked to change nothing.
Json speculate(std::vector<std::string> args) {
  args.insert(args.begin(), {"generate", "--model", tiny_model(), "-q", "--json"});
  Json plain = Json::parse(fs(args).out);
  args.emplace_back("--speculate");
  Json guessed = Json::parse(fs(args).out);
  const Json statistics = guessed["speculation"];
  for (Json* json : {&plain, &guessed}) json->erase("timing");
  guessed.erase("speculation");
  EXPECT_EQ(guessed, plain);
  guessed["speculation"] = statistics;
  return guessed;
}

TEST(Speculate, AcceptsWhatRepeatsAndChangesNothing) {
  const Json json = speculate({"-n", "64", "--ignore-eos", "The capital of France is"});
  const int proposed = json["speculation"]["proposed"], accepted = json["speculation"]["accepted"];
  EXPECT_GT(accepted, 20);  // it repeats itself
  EXPECT_GE(proposed, accepted);
  EXPECT_LT(accepted, 64);
  const Json drawn = speculate({"-n", "64", "--temp", "1.5", "--seed", "3", "Once upon a time"});
  EXPECT_LE(drawn["speculation"]["accepted"], drawn["speculation"]["proposed"]);
  EXPECT_EQ(speculate({"-n", "1", "a b a b a b"})["speculation"]["proposed"], 0);
}

TEST(Speculate, EndsWhereOneTokenAtATimeEnds) {
  // What is asked twice is answered as before: the end-of-text token is among the guesses, at every place.
  const auto text = [](const Json& ids) {
    std::string all;
    for (const auto& id : ids) all += id.dump() + " ";
    return all;
  };
  const Json first = speculate({"-n", "-1", "The capital of France is"});
  const std::string once = text(first["prompt_ids"]) + text(first["ids"]) + text(first["prompt_ids"]);
  const Json second = speculate({"-n", "-1", "--tokens", once});
  std::string begun = once + text(second["ids"]) + text(first["prompt_ids"]);
  Json rest = second["ids"];
  for (int i = 0; i < 9; ++i) {
    const Json third = speculate({"-n", "-1", "--tokens", begun});
    EXPECT_EQ(third["stop_reason"], "eos");
    EXPECT_EQ(third["ids"], rest);
    EXPECT_GT(third["speculation"]["accepted"], rest.size() / 2);
    begun += rest[0].dump() + " ";
    rest.erase(0);
  }
  for (const char* words : {" of Scotland", "Edinburgh. T", "capital", "urgh."}) {
    const Json stop = speculate({"--stop", words, "The capital of Scotland is Edinburgh. The capital of"});
    EXPECT_EQ(stop["stop_reason"], "stop");
    EXPECT_GT(stop["speculation"]["proposed"], 0);
  }
  for (int context = 8; context < 40; ++context) {
    const Json full =
        speculate({"-n", "-1", "--ignore-eos", "--ctx", std::to_string(context), "The capital of France is"});
    EXPECT_EQ(full["stop_reason"], "context");
    EXPECT_EQ(full["prompt_ids"].size() + full["ids"].size(), static_cast<std::size_t>(context));
  }
  for (int n = 1; n < 24; ++n) {
    EXPECT_EQ(speculate({"-n", std::to_string(n), "--ignore-eos", "The capital of France is"})["ids"].size(),
              static_cast<std::size_t>(n));
  }
}

TEST(Speculate, StreamsTheSameTextAndReportsOnStderr) {
  const std::vector<std::string> args = {
      "generate", "--model", tiny_model(), "-n", "48", "--ignore-eos", "The capital of France is"};
  auto guessed = args;
  guessed.emplace_back("--speculate");
  const Outcome plain = fs(args), outcome = fs(guessed);
  EXPECT_EQ(outcome.out, plain.out);
  EXPECT_TRUE(std::regex_search(outcome.err, std::regex(" · \\d+ of \\d+ guesses accepted · stop: length\n")))
      << outcome.err;
  EXPECT_EQ(plain.err.find("guesses"), std::string::npos);
}

TEST(Batch, LlamasFlagIsAFlagAndNothingElse) {
  const auto ids = [](std::vector<std::string> args) {
    args.insert(args.begin(), "tokenize");
    return fs(args).out;
  };
  EXPECT_EQ(ids({"-p", "-np"}), ids({"--", "-np"}));
  EXPECT_EQ(ids({"-p", "-np=2"}), ids({"--", "-np=2"}));
  EXPECT_NE(fs({"tokenize", "-np"}).err.find("unknown flag -np"), std::string::npos);
  EXPECT_EQ(
      fs({"bench", "-m", "synthetic:tiny-odd", "-p", "0", "-n", "2", "-r", "1", "-np=1,2", "--no-roofline"})
          .code,
      0);
}

}  // namespace
}  // namespace cli_test

// The command line as a whole: usage, exit codes, streams, text in and out, inspect and synth.
#include <nlohmann/json.hpp>
#include <regex>

#include "cli_process.h"

namespace cli_test {
namespace {

using Json = nlohmann::json;

constexpr const char* odd = "synthetic:tiny-odd";

TEST(Usage, VersionAndHelpGoToStdout) {
  const Outcome version = fs({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(
      std::regex_match(version.out, std::regex(R"(fs \d+\.\d+\.\d+ \(.+\)\ncpu kernels: (.+, )?portable\n)")))
      << version.out;
  for (const char* command : {"generate", "logits", "bench", "tokenize", "detokenize", "inspect", "synth"}) {
    const Outcome help = fs({command, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_NE(help.out.find(std::string("Usage: fs ") + command), std::string::npos) << help.out;
    EXPECT_NE(help.out.find("Examples:"), std::string::npos) << command;
    EXPECT_NE(fs({"--help"}).out.find(command), std::string::npos);
  }
}

TEST(Usage, MistakesAreOneLineAndExitWith2) {
  expect_error(fs({}), 2, "no command given; see fs --help");
  expect_error(fs({"genrate"}), 2, "unknown command genrate; see fs --help");
  expect_error(fs({"--frobnicate"}), 2, "unknown flag --frobnicate");
  expect_error(fs({"generate", "--frobnicate", "x"}), 2, "unknown flag --frobnicate; see fs generate --help");
  expect_error(fs({"logits", "x", "-z"}), 2, "unknown flag -z; see fs logits --help");
  expect_error(fs({"generate", "x", "--temp"}), 2, "--temp needs a value");
  expect_error(fs({"generate", "x", "-n", "1", "-n", "2"}), 2, "given more than once");
  expect_error(fs({"generate", "x", "--backend", "abacus"}), 2, "abacus");
  expect_error(fs({"generate", "x", "--think"}), 2, "--think requires --chat");
  expect_error(fs({"generate", "--chat", "--think", "--no-think", "x"}), 2, "excludes");
  expect_error(fs({"generate", "x", "--prompts", "y"}), 2, "excludes --prompts");
  expect_error(fs({"logits", "--tokens", "1", "--layers", "1"}), 2, "--layers requires --record");
  expect_error(fs({"synth", "tiny-odd"}), 2, "DIR is required");
  expect_error(fs({"logits", "--model", odd, "a", "-p", "b"}), 2, "an argument and --prompt");
  expect_error(fs({"inspect", odd, "--model", odd}), 2, "excludes");
}

TEST(Usage, HelpOfAnUnknownCommandIsAMistake) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"verify", "-h"},
                                             {"verify", "--help"},
                                             {"-h", "verify"},
                                             {"help", "verify"},
                                             {"verify", "--version"}}) {
    expect_error(fs(args), 2, "unknown command verify; see fs --help");
  }
  EXPECT_EQ(fs({"help", "help"}).out, fs({"-h"}).out);
  EXPECT_EQ(fs({"help", "generate"}).out, fs({"generate", "-h"}).out);
  EXPECT_EQ(fs({"generate", "verify", "-h"}).out, fs({"generate", "-h"}).out);  // a prompt
}

TEST(Usage, AFlagTakesNoValue) {
  const std::vector<std::string> base = {"generate", "--model", odd, "--tokens", "1", "-n", "1"};
  for (const char* flag :
       {"--speculate=3", "--speculate=true", "--speculate=false", "--speculate=", "--speculate=[]",
        "--sync=1", "--json=0", "--quiet=2", "--ignore-eos=x", "--help=3"}) {
    auto args = base;
    args.emplace_back(flag);
    const std::string name = std::string(flag).substr(0, std::string(flag).find('='));
    expect_error(fs(args), 2, name + " takes no value; see fs generate --help");
  }
  expect_error(fs({"--version=3"}), 2, "--version takes no value");
  auto args = base;
  args.insert(args.end(), {"--speculate", "--speculate"});
  EXPECT_EQ(fs(args).code, 0);
}

TEST(Usage, TextThatLooksLikeAFlagStaysAsItIs) {
  const TemporaryDirectory directory;
  for (const char* text : {"--a=b", "--a=", "--a=[b]", "--a=\x1e",
                           "--a=\x1e"
                           "b",
                           "--a", "-np=1", "\x1e--a=b"}) {
    SCOPED_TRACE(text);
    write_text(directory / "text", text);
    const std::string want = fs({"tokenize", "-f", directory / "text"}).out;
    EXPECT_EQ(fs({"tokenize", "-p", text}).out, want);
    EXPECT_EQ(fs({"tokenize", "--", text}).out, want);
    EXPECT_EQ(fs({"tokenize", std::string("--prompt=") + text}).out, want);
  }
}

TEST(Usage, AnEmptyFileNameIsSaidToBeOne) {
  expect_error(fs({"generate", "--model", odd, "--prompts", ""}), 2, "--prompts: the file name is empty");
  expect_error(fs({"generate", "--model", odd, "-f", ""}), 2, "--file: the file name is empty");
  expect_error(fs({"logits", "--model", odd, "--tokens", "1", "--out="}), 2, "--out: the file name is empty");
  expect_error(fs({"logits", "--model", odd, "--tokens", "1", "--record", ""}), 2, "--record: the file name");
  expect_error(fs({"layer-diff", "--model", odd, "--tokens", "1", "--svg", ""}), 2, "--svg: the file name");
  expect_error(fs({"bench", "--model", odd, "--plot", ""}), 2, "--plot: the file name is empty");
  expect_error(fs({"eval", "--model", odd, ""}), 2, "--file: the file name is empty");
  expect_error(fs({"detokenize", "-f", ""}), 2, "--file: the file name is empty");
}

TEST(Usage, AModelThatIsNotThereExitsWith3) {
  for (const char* model :
       {"synthetic:foo", "synthetic:", "synthetic:tiny-odd@x", "/no/such/dir", "no/such", "none.gguf", ""}) {
    SCOPED_TRACE(model);
    expect_error(fs({"generate", "--model", model, "--tokens", "1"}), 3, model);
    expect_error(fs({"tokenize", "--model", model, "a"}), 3, model);
    if (*model == '\0') continue;
    Command command;
    command.args = {"logits", "--tokens", "1"};
    command.environment["FS_MODEL"] = model;
    expect_error(run(command), 3, "FS_MODEL: ");
  }
}

TEST(Usage, NumbersAreChecked) {
  const std::vector<std::pair<std::string, std::string>> wrong = {{"--temp", "nan"},
                                                                  {"--temp", "-1"},
                                                                  {"--temp", "1e999"},
                                                                  {"--temp", "warm"},
                                                                  {"--temp", "0.5x"},
                                                                  {"--topk", "-1"},
                                                                  {"--topk", "1.5"},
                                                                  {"--topp", "1.01"},
                                                                  {"--topp", "-0.1"},
                                                                  {"--minp", "inf"},
                                                                  {"--minp", "2"},
                                                                  {"--repeat-penalty", "0"},
                                                                  {"--threads", "0"},
                                                                  {"--threads", "1000000"},
                                                                  {"--ctx", "0"},
                                                                  {"--ctx", "4097"},
                                                                  {"--presence-penalty", "nan"},
                                                                  {"-n", "-2"},
                                                                  {"--seed", "-1"},
                                                                  {"--seed", "18446744073709551616"},
                                                                  {"--tokens", "1,x"},
                                                                  {"--tokens", "-1"},
                                                                  {"--tokens", "347"},
                                                                  {"--tokens", ""},
                                                                  {"-n", "99999999999999999999"}};
  for (const auto& [flag, value] : wrong) {
    SCOPED_TRACE(flag + " " + value);
    std::vector<std::string> args = {"generate", "--model", odd, flag, value};
    if (flag != "--tokens") args.insert(args.end(), {"--tokens", "1,2"});
    expect_error(fs(args), 2, "");
  }
}

TEST(Usage, SpellingsOfOtherEnginesMeanTheSame) {
  const std::vector<std::string> base = {"generate", "--model", odd,      "--tokens", "1,2",
                                         "-n",       "8",       "--seed", "3",        "-q"};
  auto ours = base, theirs = base;
  ours.insert(ours.end(),
              {"--temp", "2", "--topk", "40", "--topp", "0.9", "--minp", "0.01", "--repeat-penalty", "1.1"});
  theirs.insert(theirs.end(), {"--temperature", "2", "--top-k", "40", "--top-p", "0.9", "--min-p", "0.01",
                               "--repetition-penalty", "1.1"});
  const Outcome expected = fs(ours);
  EXPECT_EQ(expected.code, 0) << expected.err;
  EXPECT_EQ(fs(theirs).out, expected.out);
}

TEST(Streams, AFullDiskIsAnError) {
  for (const auto& args :
       std::vector<std::vector<std::string>>{{"tokenize", "a"},
                                             {"logits", "--model", odd, "--tokens", "1"},
                                             {"generate", "--model", odd, "--tokens", "1", "-n", "2"},
                                             {"inspect", odd}}) {
    Command command;
    command.args = args;
    command.args.insert(command.args.end(), {"-q"});
    command.stdout_file = "/dev/full";
    expect_error(run(command), 1, "cannot write to standard output: No space left");
    command.stdout_file = "-";
    expect_error(run(command), 1, "cannot write to standard output");
  }
}

TEST(Streams, ABrokenPipeEndsQuietly) {
  Command command;
  command.args = {"generate", "--model", odd, "--tokens", "1", "-n", "-1", "-q"};
  command.close_after = 10;
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.signal, SIGPIPE);
  EXPECT_EQ(outcome.err, "");
}

TEST(Streams, ErrorsHaveNoColourUnlessOnATerminal) { EXPECT_EQ(fs({}).err.find('\x1b'), std::string::npos); }

TEST(Streams, TheBundledModelIsSaidOnceUnlessQuiet) {
  const Outcome said = fs({"tokenize", "a"});
  EXPECT_EQ(said.code, 0);
  EXPECT_NE(said.err.find("bundled tiny model"), std::string::npos) << said.err;
  EXPECT_EQ(said.err.find('\n'), said.err.size() - 1);
  EXPECT_EQ(fs({"tokenize", "-q", "a"}).err, "");
}

std::string ids_of(const std::string& text) { return fs({"tokenize", "-q", text}).out; }

TEST(Tokenize, EveryWayToGiveText) {
  const std::string expected = ids_of("Two and two");
  EXPECT_TRUE(std::regex_match(expected, std::regex(R"(\d+( \d+)*\n)"))) << expected;
  EXPECT_EQ(fs({"tokenize", "-q", "Two", "and", "two"}).out, expected);
  EXPECT_EQ(fs({"tokenize", "-q", "-p", "Two and two"}).out, expected);
  EXPECT_EQ(fs({"tokenize", "-q", "-"}, "Two and two").out, expected);
  EXPECT_EQ(fs({"tokenize", "-q", "--stdin"}, "Two and two").out, expected);
  EXPECT_EQ(fs({"tokenize", "-q"}, "Two and two").out, expected);
  const TemporaryDirectory directory;
  write_text(directory / "text", "Two and two");
  EXPECT_EQ(fs({"tokenize", "-q", "-f", directory / "text"}).out, expected);
  write_text(directory / "text", "Two and two\n");  // here every byte counts
  EXPECT_NE(fs({"tokenize", "-q", "-f", directory / "text"}).out, expected);
  EXPECT_EQ(fs({"tokenize", "-q", ""}).out, "\n");
  expect_error(fs({"tokenize", "-q", "-f", directory / "none"}), 2, "No such file");
}

TEST(Tokenize, TextReachesTheTokenizerAsItWasWritten) {
  for (const char* text : {"[a,b]", "{}", "[]", "[", "a=b", "\x1e[x]", "'quoted'", "%%", "logits"}) {
    SCOPED_TRACE(text);
    const std::string expected = fs({"tokenize", "-q"}, text).out;
    EXPECT_EQ(fs({"tokenize", "-q", text}).out, expected);
    EXPECT_EQ(fs({"tokenize", "-q", "-p", text}).out, expected);
  }
  EXPECT_EQ(fs({"tokenize", "-q", "--", "--count"}).out, fs({"tokenize", "-q"}, "--count").out);
}

TEST(Tokenize, Shapes) {
  const Outcome table = fs({"tokenize", "-q", "--pieces", "Two"});
  EXPECT_TRUE(std::regex_match(table.out, std::regex("  TOKEN ID  PIECE\n( *\\d+  \".*\"\n)+"))) << table.out;
  const Json json = Json::parse(fs({"tokenize", "-q", "--json", "Two and two"}).out);
  EXPECT_EQ(json["count"], json["ids"].size());
  std::string text;
  for (const auto& piece : json["pieces"]) text += piece.get<std::string>();
  EXPECT_EQ(text, "Two and two");
  EXPECT_EQ(fs({"tokenize", "-q", "--count", "Two and two"}).out, json["count"].dump() + "\n");
  expect_error(fs({"tokenize", "--count", "--json", "a"}), 2, "excludes");
}

TEST(Tokenize, SpecialTokensOnlyIfWanted) {
  EXPECT_EQ(fs({"tokenize", "-q", "--count", "<|im_start|>"}).out, "1\n");
  EXPECT_NE(fs({"tokenize", "-q", "--count", "--no-special", "<|im_start|>"}).out, "1\n");
}

TEST(Tokenize, InvalidUtf8IsSaidOnce) {
  const Outcome outcome = fs({"tokenize", "--model", tiny_model(), "--stdin"}, "a\xff\xfe\xc3");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, ids_of("a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"));
  EXPECT_EQ(outcome.err, "fs: the text is not valid UTF-8: 3 bad byte sequences became U+FFFD\n");
}

TEST(Tokenize, NeedsNothingButTheTokenizerFile) {
  const TemporaryDirectory directory;
  std::filesystem::copy_file(tiny_model() + "/tokenizer.json", directory / "tokenizer.json");
  EXPECT_EQ(fs({"tokenize", "--model", directory.path().string(), "Two"}).out, ids_of("Two"));
  EXPECT_EQ(fs({"tokenize", "--model", directory / "tokenizer.json", "Two"}).out, ids_of("Two"));
  Command command;
  command.args = {"tokenize", "Two"};
  command.environment["FS_MODEL"] = directory.path().string();
  EXPECT_EQ(run(command).out, ids_of("Two"));
  expect_error(fs({"tokenize", "--model", odd, "Two"}), 2, "no tokenizer");
  expect_error(fs({"tokenize", "--model", directory / "none", "Two"}), 3, "none");
  write_text(directory / "tokenizer.json", "{");
  expect_error(fs({"tokenize", "--model", directory.path().string(), "Two"}), 3, "tokenizer.json");
}

TEST(Detokenize, IsTheWayBack) {
  const std::string text = "The capital of France is Paris. 🙂";
  std::string ids = ids_of(text);
  EXPECT_EQ(fs({"detokenize", "-q"}, ids).out, text + "\n");
  ids.pop_back();
  EXPECT_EQ(fs({"detokenize", "-q", ids}).out, text + "\n");
  for (char& c : ids) c = c == ' ' ? ',' : c;
  EXPECT_EQ(fs({"detokenize", "-q", ids}).out, text + "\n");
  EXPECT_EQ(fs({"detokenize", "-q", "[" + ids + "]"}).out, text + "\n");
  EXPECT_EQ(Json::parse(fs({"detokenize", "-q", "--json", ids}).out)["text"], text);
  expect_error(fs({"detokenize", "-q", "99999999"}), 2, "99999999");
  expect_error(fs({"detokenize", "-q", "4294967296"}), 2, "4294967296");
  expect_error(fs({"detokenize", "-q", "one"}), 2, "one");
}

TEST(Inspect, ShowsWhatACheckpointHolds) {
  const Outcome text = fs({"inspect", tiny_model()});
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"hidden_size", "model.layers.0.self_attn.q_norm.weight", "BF16",
                           "logical parameters", "tokenizer ", "lm_head", "verdict: usable"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  }
  const Json json = Json::parse(fs({"inspect", "--json", "--model", odd}).out);
  EXPECT_EQ(json["config"]["num_hidden_layers"], 3);
  EXPECT_EQ(json["tensors"].size(), 36);
  EXPECT_EQ(json["tensors"][0]["shape"], Json::array({347, 72}));
  EXPECT_EQ(json["totals"]["stored_parameters"], 217560);
  EXPECT_EQ(json["totals"]["logical_parameters"], 217560);
  EXPECT_EQ(json["usable"], true);
  // BF16 in panels: 16 rows and pairs of columns. Only vectors of 16 have them.
  std::size_t panels = 0;
  for (const Json& tensor : json["tensors"]) {
    const Json& shape = tensor["shape"];
    if (shape.size() != 2) continue;
    panels += (shape[0].get<std::size_t>() + 15) / 16 * ((shape[1].get<std::size_t>() + 1) / 2) * 64;
  }
  const bool wide = fs({"--version"}).out.find("avx512") != std::string::npos;
  EXPECT_EQ(json["totals"]["bytes_copied_by_cpu_backend"], wide ? panels : 0);
  const Json big = Json::parse(fs({"inspect", "--json", "synthetic:qwen3-0.6b"}).out);
  EXPECT_EQ(big["totals"]["logical_parameters"], 596049920);
}

TEST(Synth, WritesACheckpointAndNeverOverWrites) {
  const TemporaryDirectory directory;
  const std::string model = directory / "odd";
  EXPECT_EQ(fs({"synth", "tiny-odd", model, "--seed", "7"}).code, 0);
  const std::string before = read_text(model + "/model.safetensors");
  EXPECT_EQ(fs({"inspect", model}).code, 0);
  const Outcome memory = fs({"logits", "--model", "synthetic:tiny-odd@7", "--tokens", "1,2,3"});
  EXPECT_EQ(memory.code, 0) << memory.err;
  EXPECT_EQ(fs({"logits", "--model", model, "--tokens", "1,2,3"}).out, memory.out);
  EXPECT_NE(fs({"logits", "--model", odd, "--tokens", "1,2,3"}).out, memory.out);

  expect_error(fs({"synth", "tiny-odd", model}), 1, model);
  EXPECT_EQ(read_text(model + "/model.safetensors"), before);
  EXPECT_EQ(fs({"synth", "tiny-odd", model, "--force", "-q"}).err, "");
  EXPECT_NE(read_text(model + "/model.safetensors"), before);
  expect_error(fs({"synth", "tiny-even", directory / "x"}), 2, "tiny-odd");
}

TEST(Inspect, ADamagedCheckpointExitsWith3AndSaysWhat) {
  const TemporaryDirectory directory;
  const std::string model = directory / "odd";
  ASSERT_EQ(fs({"synth", "tiny-odd", model, "-q"}).code, 0);
  const std::string weights = model + "/model.safetensors", config = model + "/config.json";
  const std::string good = read_text(weights), good_config = read_text(config);

  write_text(weights, std::string_view(good).substr(0, good.size() - 2));
  const Outcome text = fs({"inspect", model});
  EXPECT_EQ(text.code, 3);
  EXPECT_NE(text.out.find("verdict: NOT usable"), std::string::npos) << text.out;
  EXPECT_NE(text.err.find("model.safetensors"), std::string::npos) << text.err;
  const Outcome outcome = fs({"inspect", "--json", model});
  EXPECT_EQ(outcome.code, 3);
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["usable"], false);
  EXPECT_NE(json["problem"].get<std::string>().find("model.safetensors"), std::string::npos);
  expect_error(fs({"logits", "--model", model, "--tokens", "1"}), 3, "model.safetensors");

  write_text(weights, good);
  write_text(config, std::regex_replace(good_config, std::regex("\"rope_theta\""), "\"rope_delta\""));
  EXPECT_EQ(fs({"inspect", model}).code, 3);
  expect_error(fs({"generate", "--model", model, "--tokens", "1"}), 3, "rope_theta");
}

TEST(Inspect, VerifyComparesWithThePins) {
  expect_error(fs({"inspect", "--verify", odd}), 2, "only the published Qwen/Qwen3-0.6B is pinned");
  const TemporaryDirectory directory;
  ASSERT_EQ(fs({"synth", "tiny-odd", directory.path().string(), "-q"}).code, 0);
  // The same shape as the pinned model in config.json, everything else is wrong.
  Json config = Json::parse(read_text(directory / "config.json"));
  config.update(Json::parse(fs({"inspect", "--json", "synthetic:qwen3-0.6b"}).out)["config"]);
  if (config.contains("layer_types")) config["layer_types"] = Json::array();
  config.erase("layer_types");
  write_text(directory / "config.json", config.dump());
  const Outcome outcome = fs({"inspect", "--verify", "--json", directory.path().string()});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  const Json files = Json::parse(outcome.out)["verify"]["files"];
  std::map<std::string, std::string> problems;
  for (const auto& file : files) problems[file["file"]] = file["problem"];
  EXPECT_NE(problems["config.json"].find("expected 660db3b73d788119"), std::string::npos);
  EXPECT_EQ(problems["tokenizer.json"], "missing");
  EXPECT_NE(problems["model.safetensors"].find("expected 1503300328"), std::string::npos);
}

}  // namespace
}  // namespace cli_test

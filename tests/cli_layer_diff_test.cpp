// `fs layer-diff`: its verdicts on seeded faults, its recordings, its ways of comparing, its refusals.
#include <nlohmann/json.hpp>
#include <regex>

#include "cli_process.h"
#include "faults.h"

namespace cli_test {
namespace {

using Json = nlohmann::json;

constexpr const char* odd = "synthetic:tiny-odd";
const std::string odd_tokens = "1,300,77,5,5,123,340";

Command command(std::vector<std::string> args) {
  Command command;
  args.insert(args.begin(), "layer-diff");
  command.args = std::move(args);
  return command;
}

Outcome layer_diff(std::vector<std::string> args) { return run(command(std::move(args))); }

Outcome faulty(const std::string& fault, std::vector<std::string> args) {
  Command with_fault = command(std::move(args));
  with_fault.program = FS_BINARY_DIR "/bin/fs_faulty";
  with_fault.environment["FS_FAULT"] = fault;
  return run(with_fault);
}

bool has(const std::string& text, const std::string& needle) {
  return text.find(needle) != std::string::npos;
}

/// Every fault on both models, with and without injection: the verdict names exactly the operation that was
/// broken, and its layer; with injection nothing else is beyond tolerance.
TEST(LayerDiff, NamesEveryFault) {
  const std::vector<std::vector<std::string>> models = {
      {"--model", odd, "--tokens", odd_tokens}, {"--model", tiny_model(), "Once upon a time, there was"}};
  for (const auto& fault : ::fs::faults::all()) {
    const std::size_t layer = per_layer(fault.point) ? 1 : 0;
    for (const auto& model : models) {
      for (const bool inject : {false, true}) {
        SCOPED_TRACE(fault.name + " " + model[1] + (inject ? " --inject" : ""));
        std::vector<std::string> args = model;
        args.insert(args.begin(), {"--json", "--b", "cpu,threads=1"});
        if (inject) args.push_back("--inject");
        const Outcome outcome = faulty(fault.name + "@" + std::to_string(layer), args);
        ASSERT_EQ(outcome.code, 1) << outcome.err;
        const Json report = Json::parse(outcome.out);
        const std::string tap = tap_key(fault.point, layer);
        EXPECT_FALSE(report["within"]);
        EXPECT_EQ(report["first"]["tap"], tap);
        const std::string operation =
            (per_layer(fault.point) ? "layer 1 " : "") + std::string(name(fault.point));
        EXPECT_TRUE(has(report["verdict"], "first difference: " + operation)) << report["verdict"];
        if (!inject) continue;
        EXPECT_EQ(report["worst"]["tap"], tap);
        EXPECT_TRUE(has(report["verdict"], "adds most: " + operation)) << report["verdict"];
        for (const Json& other : report["taps"]) EXPECT_EQ(other["within"], other["tap"] != tap) << other;
      }
    }
  }
}

TEST(LayerDiff, PrintsATableAndAVerdict) {
  const Outcome outcome = layer_diff({"--model", odd, "--b", "cpu", "--tokens", odd_tokens});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const std::regex shape(
      "A: reference · B: cpu · synthetic:tiny-odd\n"
      "worst element of each tap as a share of 0\\.0001 \\+ 0\\.0001·\\|a\\|\n\n"
      "     layer  attn_norm          q          k          v   attn_out attn_resid   mlp_norm    mlp_act  "
      "block_out\n"
      "     embed          0\n"
      "(         [012]( +(0|<0\\.1 %|\\d+\\.\\d %)){9}\n){3}"
      "final_norm .*\n    logits .*\n\n"
      "within tolerance: worst .*, token \\d, .*channel \\d+: .* vs .* \\(.* % of tolerance\\)\n"
      "next token: A and B choose .*\n");
  EXPECT_TRUE(std::regex_match(outcome.out, shape)) << outcome.out;
}

TEST(LayerDiff, SaysWhereAFaultIsInOneLine) {
  const Outcome outcome = faulty("mlp_act: scaled@2", {"--model", odd, "--tokens", odd_tokens, "--top", "3"});
  EXPECT_EQ(outcome.code, 1);
  const std::regex verdict(
      "\nfirst difference: layer 2 mlp_act, token \\d, channel \\d+: \\S+ vs \\S+ \\([\\d,.]+× "
      "tolerance\\)\n");
  EXPECT_TRUE(std::regex_search(outcome.out, verdict)) << outcome.out;
  const std::regex elements(
      "layer 2 mlp_act \\[7, 1, 151\\]: max \\|b−a\\| .*\n(  token \\d, channel \\d+ .*\n){3}");
  EXPECT_TRUE(std::regex_search(outcome.out, elements)) << outcome.out;
  EXPECT_FALSE(has(outcome.out, "layer 2 block_out [")) << outcome.out;
  const Outcome all = faulty("mlp_act: scaled@2", {"--model", odd, "--tokens", odd_tokens, "--all"});
  EXPECT_TRUE(has(all.out, "layer 2 block_out [")) << all.out;
}

TEST(LayerDiff, ToleranceAndChoiceDecide) {
  const std::vector<std::string> args = {"--model", odd, "--tokens", odd_tokens, "--json"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), args.begin(), args.end());
    return more;
  };
  EXPECT_EQ(layer_diff(with({"--atol", "1e-9", "--rtol", "0"})).code, 1);
  EXPECT_EQ(faulty("q: transposed@1", with({"--atol", "1e9"})).code, 0);
  EXPECT_EQ(faulty("q: transposed@1", with({"--taps", "q,v", "--layers", "0"})).code, 0);
  const Outcome outcome = faulty("q: transposed@1", with({"--taps", "block_out,q", "--layers", "1-2"}));
  EXPECT_EQ(outcome.code, 1);
  std::vector<std::string> taps;
  const Json report = Json::parse(outcome.out);
  for (const Json& tap : report["taps"]) taps.push_back(tap["tap"]);
  EXPECT_EQ(taps, (std::vector<std::string>{"layers.1.q", "layers.1.block_out", "layers.2.q",
                                            "layers.2.block_out"}));
}

TEST(LayerDiff, NotANumberIsBeyondEveryTolerance) {
  const Outcome outcome =
      faulty("mlp_act: NaN@1", {"--model", odd, "--tokens", odd_tokens, "--atol", "1e30", "--json"});
  EXPECT_EQ(outcome.code, 1);
  const Json report = Json::parse(outcome.out);
  EXPECT_EQ(report["first"]["tap"], "layers.1.mlp_act");
  EXPECT_EQ(report["first"]["not_finite_b"], 1);
  EXPECT_EQ(report["first"]["share"], Json());
}

TEST(LayerDiff, ComparesWithGoldenRecordings) {
  for (const std::string& model : {tiny_model(), std::string(odd)}) {
    for (const char* backend : {"reference", "cpu"}) {
      const Outcome outcome = layer_diff({"--model", model, "--a", "golden", "--b", backend, "--json"});
      EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
      const Json report = Json::parse(outcome.out);
      EXPECT_EQ(report["taps"].size(), model == odd ? 3 * 9 + 3 : 5 * 9 + 3);
      EXPECT_EQ(report["not_compared"], 0);
    }
  }
  expect_error(layer_diff({"--model", odd, "--a", "golden", "--tokens", "1,2"}), 3,
               "no recording of this prompt");
  expect_error(layer_diff({"--model", "synthetic:tiny-odd@5", "--a", "golden"}), 3, "holds no recording");
  const Outcome outcome = faulty("v: transposed@2", {"--model", odd, "--a", "golden", "--b", "cpu"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(has(outcome.out, "first difference: layer 2 v,")) << outcome.out;
}

TEST(LayerDiff, RecordsAndComparesWithTheRecording) {
  const TemporaryDirectory directory;
  const std::string file = directory / "a.safetensors", again = directory / "b.safetensors",
                    logits = directory / "c.safetensors";
  const std::vector<std::string> run = {"--model", odd, "--tokens", odd_tokens};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), run.begin(), run.end());
    return more;
  };
  ASSERT_EQ(layer_diff(with({"--record", file})).code, 0);
  ASSERT_EQ(layer_diff(with({"--record", again, "--b", "cpu,isa=portable"})).code, 0);
  ASSERT_EQ(fs(with({"logits", "--backend", "reference", "--record", logits})).code, 0);
  EXPECT_EQ(read_text(file), read_text(again));
  EXPECT_EQ(read_text(file), read_text(logits));

  const std::string dump = "dump:" + file;
  for (const auto& [a, b] : {std::pair(dump, std::string("reference")),
                             std::pair(std::string("reference"), dump), std::pair(dump, dump)}) {
    const Outcome outcome = layer_diff({"--model", odd, "--a", a, "--b", b, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json report = Json::parse(outcome.out);
    EXPECT_EQ(report["taps"].size(), 3 * 9 + 3);
    EXPECT_EQ(report["worst"]["max_abs"], 0) << a << " " << b;
  }
  EXPECT_EQ(faulty("k: swapped heads@0", with({"--a", dump, "--b", "cpu"})).code, 1);
  EXPECT_EQ(faulty("k: swapped heads@0", with({"--a", "cpu", "--b", dump})).code, 1);

  expect_error(layer_diff({"--model", odd, "--tokens", "1,2", "--a", dump}), 3, "recorded of other tokens");
  expect_error(layer_diff({"--model", "synthetic:tiny-odd@1", "--a", dump}), 3, "recorded of model_hash");
  const Outcome forced = layer_diff({"--model", "synthetic:tiny-odd@1", "--a", dump, "--force"});
  EXPECT_EQ(forced.code, 1);
  EXPECT_TRUE(has(forced.out, "first difference: embed")) << forced.out;
}

TEST(LayerDiff, RefusesBrokenRecordings) {
  const TemporaryDirectory directory;
  const std::string file = directory / "a.safetensors";
  ASSERT_EQ(layer_diff({"--model", odd, "--tokens", "1,2", "--record", file}).code, 0);
  const std::string good = read_text(file);
  const auto refuse = [&](const std::string& from, const std::string& to, const char* needle) {
    std::string bad = good;
    const std::size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    write_text(file, bad);
    expect_error(layer_diff({"--model", odd, "--a", "dump:" + file}), 3, needle);
  };
  refuse("\"embed\"", "\"enbed\"", "enbed");
  refuse("layers.2.q", "layers.x.q", "layers.x.q");
  refuse("\"tokens\":\"1,2\"", "\"tokens\":\"1,x\"", "tokens");
  refuse("\"first_position\":\"0\"", "\"first_position\":\"z\"", "first_position");
  refuse("\"first_position\":\"0\"", "\"first_positioX\":\"0\"", "first_position");
  refuse("\"model_hash\"", "\"model_hasH\"", "not said");
  write_text(file, good.substr(0, good.size() - 4));
  expect_error(layer_diff({"--model", odd, "--a", "dump:" + file}), 3, file);
  expect_error(layer_diff({"--model", odd, "--a", "dump:" + (directory / "none")}), 3, "none");
}

TEST(LayerDiff, DecodeComparesStepsWithTheSameTokens) {
  const std::vector<std::string> args = {"--model", odd,   "--tokens", "1,2,3", "--decode",
                                         "4",       "--b", "cpu",      "--json"};
  const Outcome outcome = layer_diff(args);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Outcome broken = faulty("k: stale KV row@1", args);  // needs two rows: it spares the steps
  ASSERT_EQ(broken.code, 1);
  EXPECT_FALSE(Json::parse(broken.out)["first"].contains("where"));
  const Outcome step = faulty("attn_out: last row not written@1",
                              {"--model", odd, "--tokens", "1", "--decode", "2", "--b", "cpu", "--json"});
  ASSERT_EQ(step.code, 1);
  EXPECT_EQ(Json::parse(step.out)["first"]["tap"], "layers.1.attn_out");
}

/// A fault that depends on how many rows a pass has shows only when a run is compared with itself.
TEST(LayerDiff, SelfFindsWhatOnlyOneWayOfRunningGetsWrong) {
  const std::vector<std::string> args = {"--self", "--b",      "cpu",      "--model",
                                         odd,      "--tokens", odd_tokens, "--json"};
  EXPECT_EQ(layer_diff(args).code, 0);
  const Outcome outcome = faulty("v: stale KV row@1", args);  // the fault needs two rows in a pass
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(Json::parse(outcome.out)["first"]["tap"], "layers.1.v");
}

TEST(LayerDiff, GreedyShowsTheFirstTokenThatDiffers) {
  const std::vector<std::string> args = {
      "--greedy", "12", "--b", "cpu", "--model", tiny_model(), "The capital of France is"};
  const Outcome same = layer_diff(args);
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_TRUE(has(same.out, "greedy: 12 tokens, the same on both sides")) << same.out;
  const Outcome other = faulty("logits: shifted by one@0", args);
  EXPECT_EQ(other.code, 1);
  const std::regex line("greedy: token \\d+ of 12 is the first that differs: A chooses .*; B chooses .*\n");
  EXPECT_TRUE(std::regex_match(other.out, line)) << other.out;
}

TEST(LayerDiff, ManyPromptsAreNamed) {
  const TemporaryDirectory directory;
  const std::string file = directory / "prompts.jsonl";
  write_text(file, "{\"tokens\": [1, 2]}\n{\"tokens\": [3, 4, 5]}\n");
  const Outcome outcome = faulty("q: transposed@0", {"--model", odd, "--prompts", file, "--json"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(has(Json::parse(outcome.out)["first"]["where"], "prompts.jsonl:1")) << outcome.out;
}

TEST(LayerDiff, DrawsAHeatMap) {
  const TemporaryDirectory directory;
  const std::string file = directory / "heat.svg";
  EXPECT_EQ(faulty("q: transposed@1", {"--model", odd, "--tokens", odd_tokens, "--svg", file}).code, 1);
  const std::string svg = read_text(file);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_TRUE(has(svg, ">layer 2</text>") && has(svg, ">attn_resid</text>") &&
              has(svg, "first difference: layer 1 q"));
}

// The same quantised weights agree on two backends; against the stored ones they are beyond tolerance, first
// in the embedding, which every format but the stored one changes.
TEST(LayerDiff, ComparesWeightFormats) {
  for (const std::string dtype : {"q8_0", "int4"}) {
    SCOPED_TRACE(dtype);
    const Outcome same = layer_diff(
        {"--a", "reference:" + dtype, "--b", "cpu,dtype=" + dtype, "--model", odd, "--tokens", odd_tokens});
    EXPECT_EQ(same.code, 0) << same.out << same.err;
    const Outcome lossy =
        layer_diff({"--a", "cpu", "--b", "cpu:" + dtype, "--model", odd, "--tokens", odd_tokens});
    EXPECT_EQ(lossy.code, 1) << lossy.err;
    EXPECT_TRUE(has(lossy.out, "first difference: embed")) << lossy.out;
    EXPECT_TRUE(has(lossy.out, "A: cpu · B: cpu:" + dtype)) << lossy.out;
  }
}

TEST(LayerDiff, EqualValuesAreWithinNoTolerance) {
  EXPECT_EQ(layer_diff(
                {"--a", "cpu", "--b", "cpu", "--atol", "0", "--rtol", "0", "--model", odd, "--tokens", "1,2"})
                .code,
            0);
}

TEST(LayerDiff, NamesTheFirstProjectionThatRoundedActivationsChange) {
  for (const std::string act : {"int8", "bf16"}) {
    SCOPED_TRACE(act);
    const std::string b = "cpu:q8_0,act=" + act;
    const Outcome lossy = layer_diff({"--a", "cpu:q8_0", "--b", b, "--model", odd, "--tokens", odd_tokens});
    EXPECT_EQ(lossy.code, 1) << lossy.err;
    EXPECT_TRUE(has(lossy.out, "first difference: layer 0 q")) << lossy.out;
    EXPECT_TRUE(has(lossy.out, "B: " + b)) << lossy.out;
    EXPECT_EQ(layer_diff({"--a", b, "--b", b, "--model", odd, "--tokens", odd_tokens}).code, 0);
  }
}

TEST(LayerDiff, NamesTheKeysThatTheCacheRounds) {
  for (const std::string kv : {"f16", "bf16"}) {
    SCOPED_TRACE(kv);
    const std::string b = "cpu,kv=" + kv;
    const Outcome lossy = layer_diff({"--a", "cpu", "--b", b, "--model", odd, "--tokens", odd_tokens});
    EXPECT_EQ(lossy.code, 1) << lossy.err;
    EXPECT_TRUE(has(lossy.out, "first difference: layer 0 k")) << lossy.out;
    EXPECT_EQ(layer_diff({"--self", "--b", b, "--model", odd, "--tokens", odd_tokens}).code, 0);
  }
}

TEST(LayerDiff, RefusesWhatDoesNotGoTogether) {
  const auto refuse = [](std::vector<std::string> args, const char* needle) {
    args.insert(args.end(), {"--model", odd, "--tokens", "1,2"});
    expect_error(layer_diff(args), 2, needle);
  };
  refuse({"--a", "nonesuch"}, "nonesuch");
  refuse({"--a", "cpu,isa=mmx"}, "mmx");
  refuse({"--a", "cpu:int9"}, "int9");
  refuse({"--a", "cpu:"}, "dtype");
  refuse({"--a", "cpu,dtype=int9"}, "int9");
  refuse({"--a", "cpu,isa"}, "KEY=VALUE");
  refuse({"--a", "cpu,colour=red"}, "colour");
  refuse({"--a", "cpu,threads=0"}, "threads");
  refuse({"--a", "cpu,kv=q8_0"}, "kv");
  refuse({"--a", "cpu,act=int9"}, "int9");
  refuse({"--a", "reference,kv=f16"}, "--kv f16: not for backend reference, only for cpu, cuda");
  refuse({"--b", "cuda-emulated,act=int8"}, "--act int8: not for backend cuda-emulated, only for cpu");
  refuse({"--b", "cpu,act=int8"}, "model.embed_tokens.weight is BF16");
  refuse({"--a", "dump:"}, "dump:");
  refuse({"--a", "reference,model=" + tiny_model()}, "different shapes");
  refuse({"--a", "golden", "--decode", "2"}, "--decode");
  refuse({"--b", "golden", "--inject"}, "--inject");
  refuse({"--self", "--b", "golden"}, "--self");
  refuse({"--self", "--a", "cpu"}, "--a");
  refuse({"--taps", "nonesuch"}, "nonesuch");
  refuse({"--layers", "3"}, "3");
  refuse({"--atol", "-1"}, "--atol");
  refuse({"--ctx", "1"}, "context");
}

}  // namespace
}  // namespace cli_test

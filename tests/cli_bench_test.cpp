// fs bench as a user runs it.
#include <cli/bench_report.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli_process.h"

namespace cli_test {
namespace {

using Json = nlohmann::json;

/// A run that takes a moment.
std::vector<std::string> quick(std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"bench", "-m", "synthetic:tiny-odd", "-p", "8", "-n", "4", "-r", "3"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Bench, TableHasARowForEachTest) {
  const Outcome outcome = fs(quick({"-d", "0,16", "-t", "2", "--backend", "cpu"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 9U) << outcome.out;
  EXPECT_NE(lines[0].find("synthetic:tiny-odd"), std::string::npos);
  EXPECT_TRUE(lines[1].starts_with("2 threads read ")) << lines[1];
  EXPECT_NE(lines[1].find("fp32"), std::string::npos);
  EXPECT_TRUE(lines[3].starts_with("| model")) << lines[3];
  const std::vector<std::string> tests = {" pp8 ", " tg4 ", " pp8@d16 ", " tg4@d16 "};
  for (std::size_t i = 0; i < tests.size(); ++i) {
    const std::string& row = lines[5 + i];
    EXPECT_NE(row.find(tests[i]), std::string::npos) << row;
    EXPECT_TRUE(row.starts_with("| tiny-odd | bf16  | cpu     |       2 |")) << row;
    EXPECT_TRUE(row.ends_with(" % |")) << row;
    EXPECT_EQ(std::count(row.begin(), row.end(), '|'), std::count(lines[3].begin(), lines[3].end(), '|'))
        << row;
  }
}

TEST(Bench, ListsMayBeLong) {  // longer than a string holds without memory of its own
  const Outcome outcome =
      fs({"bench", "-m", "synthetic:tiny-odd", "-p", "1,2,3,4,5,6,7,8,9,10,11,12", "-n", "0", "-r", "1", "-t",
          "1", "--isa", "portable,portable,portable", "--no-roofline", "-o", "jsonl"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 36);
  EXPECT_NE(outcome.out.find("\"pp12\""), std::string::npos);
}

TEST(Bench, RowsFitIntoATerminal) {
  const auto lines =
      lines_of(fs({"bench", "-m", "synthetic:tiny-odd", "-p", "16", "-n", "2", "-d", "2048", "-r", "2"}).out);
  for (const std::string& line : lines) {
    if (!line.starts_with("|")) continue;
    EXPECT_LE(line.size(), 121U) << line;  // bytes: ± has two
  }
}

TEST(Bench, GridMakesEveryCombination) {
  const Outcome outcome =
      fs({"bench", "-m", "synthetic:tiny-odd", "-p", "0", "-n", "4", "-r", "1", "-t", "1,2", "--dtype",
          "q8_0,int4", "--backend", "cpu,reference", "--no-roofline", "--output", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = Json::parse(outcome.out);
  EXPECT_EQ(document["rooflines"], Json::array());
  EXPECT_EQ(document["complete"], true);
  std::vector<std::string> found;
  for (const Json& row : document["results"]) {
    found.push_back(row["dtype"].get<std::string>() + " " + row["backend"].get<std::string>() + " " +
                    std::to_string(row["threads"].get<int>()));
    EXPECT_EQ(row["isa"] == "", row["backend"] == "reference");
    EXPECT_EQ(row["limit_ts"], nullptr);
  }
  EXPECT_EQ(found,
            (std::vector<std::string>{"q8_0 cpu 1", "q8_0 cpu 2", "q8_0 reference 1", "q8_0 reference 2",
                                      "int4 cpu 1", "int4 cpu 2", "int4 reference 1", "int4 reference 2"}));
}

TEST(Bench, TableShowsAVariedFlagAndNoLimitWithoutARoofline) {
  const auto lines = lines_of(fs(quick({"--isa", "portable,auto", "--backend", "cpu", "--no-roofline"})).out);
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_NE(lines[2].find("| isa "), std::string::npos) << lines[2];
  EXPECT_NE(lines[4].find("| portable |"), std::string::npos) << lines[4];
  EXPECT_TRUE(lines[4].ends_with(" - |")) << lines[4];
}

TEST(Bench, SequencesAtOnceAreARowOfTheirOwn) {
  const Outcome outcome = fs(quick({"--json", "--backend", "cpu", "-t", "1", "-np", "1,8", "-d", "0,64"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json rows = Json::parse(outcome.out)["results"];
  std::vector<std::string> tests;
  for (const Json& row : rows) tests.push_back(row["test"]);
  EXPECT_EQ(tests, (std::vector<std::string>{"pp8", "tg4", "tg4x8", "pp8@d64", "tg4@d64", "tg4x8@d64"}));
  EXPECT_EQ(rows[1]["n_parallel"], 1);
  EXPECT_EQ(rows[2]["n_parallel"], 8);
  EXPECT_EQ(rows[2]["n_gen"], 4);
  EXPECT_EQ(rows[2]["flops_per_token"], rows[1]["flops_per_token"]);
  EXPECT_LT(rows[2]["bytes_per_token"].get<double>(), rows[1]["bytes_per_token"].get<double>() / 4);
}

/// What holds between the figures of a row, whatever they are.
void check_row(const Json& row) {
  const auto samples = row["samples_ts"].get<std::vector<double>>();
  ASSERT_EQ(samples.size(), 3U);
  double mean = 0;
  for (const double sample : samples) mean += sample / 3;
  auto sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_NEAR(row["avg_ts"].get<double>(), mean, mean * 1e-9);
  EXPECT_EQ(row["median_ts"].get<double>(), sorted[1]);
  EXPECT_NEAR(row["bytes_per_second"].get<double>(), row["bytes_per_token"].get<double>() * sorted[1], 1);
  EXPECT_NEAR(row["flops_per_second"].get<double>(), row["flops_per_token"].get<double>() * sorted[1], 1);
  EXPECT_NEAR(row["limit_share"].get<double>() * row["limit_ts"].get<double>(), sorted[1], sorted[1] * 1e-9);
}

TEST(Bench, JsonAndItsLinesCarryEverything) {
  const Outcome whole = fs(quick({"--json", "--backend", "cpu", "-t", "1"}));
  const Json document = Json::parse(whole.out);
  EXPECT_EQ(document["model"], "synthetic:tiny-odd");
  EXPECT_TRUE(document["build"].get<std::string>().starts_with("fs "));
  ASSERT_EQ(document["rooflines"].size(), 1U);
  ASSERT_EQ(document["results"].size(), 2U);
  EXPECT_EQ(document["results"][0]["n_prompt"], 8);
  EXPECT_EQ(document["results"][1]["n_gen"], 4);
  for (const Json& row : document["results"]) check_row(row);

  const auto lines = lines_of(fs(quick({"-o", "jsonl", "--backend", "cpu", "-t", "1"})).out);
  ASSERT_EQ(lines.size(), 2U);
  for (const std::string& line : lines) {
    const Json row = Json::parse(line);
    check_row(row);
    EXPECT_EQ(row["model"], "synthetic:tiny-odd");
    // The limit is that of the roofline beside it.
    const double read = row["roofline"]["read_bytes_per_second"].get<double>();
    const double fp32 = row["roofline"]["peaks"][0]["operations_per_second"].get<double>();
    const double memory = read / row["bytes_per_token"].get<double>();
    const double arithmetic = fp32 / row["flops_per_token"].get<double>();
    EXPECT_NEAR(row["limit_ts"].get<double>(), std::min(memory, arithmetic), 1e-6 * memory);
    EXPECT_EQ(row["limited_by"], memory <= arithmetic ? "memory" : "arithmetic");
  }
}

TEST(Bench, CsvHasOneHeaderAndQuotesWhatNeedsIt) {
  const auto lines = lines_of(fs(quick({"--output", "csv", "--backend", "cpu"})).out);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(lines[0].starts_with("build,cpu,model,dtype,backend,isa,kv,act,step,threads,test,"))
      << lines[0];
  for (const char* column : {"median_ts", "samples_ts", "limit_share", "roofline_read", "roofline_fp32"}) {
    EXPECT_NE(lines[0].find(column), std::string::npos) << column;
  }
  const auto cells = [](const std::string& line) {
    std::size_t commas = 0;
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') quoted = !quoted;
      commas += c == ',' && !quoted;
    }
    return commas + 1;
  };
  EXPECT_EQ(cells(lines[0]), cells(lines[1]));
  EXPECT_EQ(cells(lines[0]), cells(lines[2]));
}

/// A decode step of a model of three layers, through the emulator.
std::vector<std::string> kernels(const std::vector<std::string>& more) {
  std::vector<std::string> args = {
      "bench", "-q", "-m", "synthetic:tiny-odd", "--backend", "cuda-emulated", "-p", "4", "-n",
      "1",     "-r", "3",  "--kernels"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(Bench, TimesTheKernelsOfAStep) {
  const Outcome outcome = fs(kernels({"-d", "0,40", "-np", "1,2", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json rows = Json::parse(outcome.out)["results"];
  ASSERT_EQ(rows.size(), 6U);
  std::vector<double> attention;
  for (const Json& row : rows) {
    const double copies = row["copy_bytes_per_second"].get<double>();
    EXPECT_GT(copies, 1e6);
    ASSERT_EQ(row.contains("kernels"), row["n_gen"] == 1 && row["n_parallel"] == 1);
    if (row["n_gen"] == 1) {
      EXPECT_EQ(row["limited_by"], "memory");
      EXPECT_NEAR(row["limit_share"].get<double>() * copies, row["bytes_per_second"].get<double>(), 1);
    } else {
      EXPECT_EQ(row["limit_ts"], nullptr);
    }
    if (!row.contains("kernels")) continue;
    std::vector<std::string> names;
    double bytes = 0;
    for (const Json& kernel : row["kernels"]) {
      names.push_back(kernel["kernel"]);
      const bool once = kernel["kernel"] == "embed" || kernel["kernel"] == "head";
      EXPECT_EQ(kernel["launches"], once ? 1 : 3);
      auto seconds = kernel["samples_seconds"].get<std::vector<double>>();
      ASSERT_EQ(seconds.size(), 3U);
      std::sort(seconds.begin(), seconds.end());
      EXPECT_EQ(kernel["seconds"].get<double>(), seconds[1]);
      const double rate = kernel["bytes_per_second"].get<double>();
      EXPECT_NEAR(rate * seconds[1], kernel["bytes"].get<double>(), 1e-6);
      EXPECT_NEAR(kernel["limit_share"].get<double>() * copies, rate, 1e-6 * rate);
      bytes += kernel["bytes"].get<double>();
      if (kernel["kernel"] == "attention_decode") attention.push_back(kernel["bytes"].get<double>());
    }
    EXPECT_EQ(names, (std::vector<std::string>{"embed", "norm_qkv", "attention_decode", "attn_out", "swiglu",
                                               "mlp_down", "head"}));
    // The norms, which cost counts too, come to a few bytes.
    EXPECT_NEAR(bytes, row["bytes_per_token"].get<double>(), 0.02 * bytes);
  }
  ASSERT_EQ(attention.size(), 2U);
  EXPECT_EQ(attention[1], 41 * attention[0]);
}

TEST(Bench, ShowsKernelsBehindTheRowsAndAnythingOnStandardErrorToo) {
  const Outcome outcome = fs(kernels({"--step", "persistent", "-oe", "jsonl"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = lines_of(outcome.out);
  const auto at = [&](const std::string& begin) {
    const auto found = std::find_if(lines.begin(), lines.end(),
                                    [&](const std::string& line) { return line.starts_with(begin); });
    return found - lines.begin();
  };
  EXPECT_LT(at("| tiny-odd | bf16  |"), at("cuda-emulated: memory copies "));
  EXPECT_LT(at("cuda-emulated: memory copies "),
            at("tg1, bf16, cuda-emulated, kv f32, act f32, step persistent: "));
  EXPECT_LT(at("| embed            |        1 |"), at("| decode_layers    |        1 |"));
  EXPECT_LT(at("| decode_layers    |        1 |"), at("| all              |        3 |"));
  EXPECT_LT(at("| all              |        3 |"), std::ssize(lines));
  const auto aside = lines_of(outcome.err);
  ASSERT_EQ(aside.size(), 2U) << outcome.err;
  EXPECT_EQ(Json::parse(aside[0])["test"], "pp4");
  EXPECT_EQ(Json::parse(aside[1])["kernels"].size(), 3U);

  const Outcome without =
      fs(quick({"--no-roofline", "--backend", "cpu", "--output-err", "csv", "-o", "jsonl"}));
  EXPECT_EQ(lines_of(without.out).size(), 2U);
  EXPECT_EQ(lines_of(without.err).size(), 3U);
}

TEST(Bench, SaysWhereThereAreNoKernelsToTime) {
  const Outcome outcome = fs(quick({"--kernels", "--no-roofline"}));
  EXPECT_EQ(outcome.code, 0);
  if (outcome.out.find("| cuda ") == std::string::npos) {
    EXPECT_NE(outcome.err.find("fs: --kernels: backend cpu has none\n"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(fs(kernels({"--no-roofline", "-d", "20"})).code, 0);
  expect_error(fs(quick({"--kernels", "--backend", "cuda-emulated,cpu"})), 2,
               "--kernels: not for backend cpu, only for cuda and cuda-emulated");
  expect_error(fs(kernels({"-o", "csv"})), 2, "--kernels: csv has no room for them");
  expect_error(fs(kernels({"-oe", "csv"})), 2, "--kernels: csv has no room for them");
  expect_error(fs(kernels({"-np", "2"})), 2, "--kernels: it is for decoding one sequence");
  expect_error(fs(kernels({"-oe", "xml"})), 2, "-oe: \"xml\" is unknown");
}

TEST(Bench, WrongUseIsRefusedBeforeWeightsAreLoaded) {
  const std::string odd = "synthetic:tiny-odd";
  expect_error(fs({"bench", "-m", odd, "-p", "0", "-n", "0"}), 2, "-p and -n are both 0");
  expect_error(fs({"bench", "-m", odd, "-p", "4097", "-n", "0"}), 2, "pp4097: more positions than the 4096");
  expect_error(fs({"bench", "-m", odd, "-d", "0,4000", "-n", "97"}), 2,
               "@d4000: more positions than the 4096");
  expect_error(fs({"bench", "-m", odd, "-n", "x"}), 2, "-n");
  expect_error(fs({"bench", "-m", odd, "-d", "1,,2"}), 2, "empty item");
  expect_error(fs({"bench", "-m", odd, "-r", "0"}), 2, "-r");
  expect_error(fs({"bench", "-m", odd, "-np", "8,0"}), 2, "-np: ");
  expect_error(fs({"bench", "-m", odd, "-t", "0"}), 2, "--threads");
  expect_error(fs({"bench", "-m", odd, "--dtype", "q8_0,q9"}), 2, "--dtype: \"q9\" is unknown");
  expect_error(fs({"bench", "-m", odd, "--output", "xml"}), 2, "--output");
}

/// expect_error() also sees that no row was printed: the combination is never the first.
TEST(Bench, ACombinationThatCannotRunIsNamedBeforeAnyIsMeasured) {
  const auto refuse = [](const std::vector<std::string>& flags, const char* message, int code = 2) {
    expect_error(fs(quick(flags)), code, std::string("fs: error: ") + message);
  };
  refuse({"--dtype", "q8_0,bf16", "--act", "int8"},
         "--dtype bf16 cannot run: --act int8 is for weights in q8_0 or int4: model.embed_tokens.weight is "
         "BF16; add --dtype q8_0\n");
  refuse({"--dtype", "int4,auto", "--act", "f32,int8"}, "--dtype auto --act int8 cannot run: --act int8 is");
  refuse({"--backend", "cpu,reference", "--kv", "f32,f16"},
         "--backend reference --kv f16 cannot run: --kv f16: not for backend reference, only for cpu, cuda "
         "and cuda-emulated\n");
  refuse({"--backend", "cpu,reference", "--isa", "portable"},
         "--backend reference cannot run: --isa portable: not for backend reference, only for cpu\n");
  refuse({"--backend", "cuda-emulated,cpu", "--sync"},
         "--backend cpu cannot run: --sync: not for backend cpu");
  refuse({"--backend", "cuda-emulated,cpu", "--step", "graph,persistent"},
         "--backend cpu --step persistent cannot run: --step persistent: not for backend cpu");
  refuse({"--backend", "cpu", "--sync"}, "--sync: not for backend cpu, only for cuda and cuda-emulated\n");
  refuse({"--backend", "reference", "--kv", "f16"}, "--kv f16: not for backend reference");
  refuse({"--backend", "cuda-emulated", "--kv", "f32,f16", "--device", "99"},
         "--kv f32 cannot run: --device 99: ", 4);
}

TEST(Bench, CtrlCLeavesTheRowsThatAreDone) {
  Command command;
  command.args = {"bench", "-m",    "synthetic:tiny-odd", "-p", "8", "-n", "4096",
                  "-r",    "10000", "--no-roofline"};
  command.interrupt_when = [](const std::string& out) { return out.find(" pp8 ") != std::string::npos; };
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(outcome.err, "fs: error: interrupted\n");
  EXPECT_NE(outcome.out.find(" pp8 "), std::string::npos);
  EXPECT_EQ(outcome.out.find("tg4096"), std::string::npos);
}

TEST(Bench, PlotDrawsEveryDepthAndTheLimit) {
  const TemporaryDirectory directory;
  const Outcome outcome = fs(quick(
      {"-d", "0,32,64", "--dtype", "bf16,q8_0", "--backend", "cpu", "--plot", directory / "bench.svg"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string svg = read_text(directory / "bench.svg");
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  const auto count = [&](std::string_view what) {
    std::size_t found = 0;
    for (std::size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<circle "), 12U);  // two formats, two tests, three depths
  EXPECT_EQ(count("<polyline "), 8U);
  EXPECT_EQ(count("stroke-dasharray"), 4U);
  EXPECT_EQ(count("dashed: the limit"), 2U);
  EXPECT_EQ(fs(quick({"--plot", "/nonexistent/x.svg"})).code, 1);
}

TEST(Bench, PlotWithoutARooflineSaysNothingOfALimit) {
  const TemporaryDirectory directory;
  const std::string file = directory / "bench.svg";
  ASSERT_EQ(fs(quick({"--backend", "cpu", "--no-roofline", "--plot", file})).code, 0);
  const std::string svg = read_text(file);
  EXPECT_NE(svg.find("<polyline "), std::string::npos);
  EXPECT_EQ(svg.find("limit"), std::string::npos);
}

TEST(Bench, Figures) {
  EXPECT_EQ(fs::cli::rate_text(3.14159), "3.14");
  EXPECT_EQ(fs::cli::rate_text(99.996), "100.0");
  EXPECT_EQ(fs::cli::rate_text(512.34), "512.3");
  EXPECT_EQ(fs::cli::rate_text(12345.6), "12346");
}

}  // namespace
}  // namespace cli_test

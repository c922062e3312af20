// Flags that not every backend has: refused, said to have no effect, or given to the side that has them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli_process.h"

namespace cli_test {
namespace {

using Json = nlohmann::json;

constexpr const char* odd = "synthetic:tiny-odd";

std::vector<std::string> logits_with(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"logits", "--model", odd, "--tokens", "1,2", "--json"});
  return flags;
}

TEST(BackendFlags, OfAnotherBackendAreRefused) {
  const auto refuse = [](const char* backend, std::vector<std::string> flag, const char* rest) {
    std::string text = flag.front();
    if (flag.size() > 1) text += " " + flag.back();
    flag.insert(flag.end(), {"--backend", backend});
    expect_error(fs(logits_with(flag)), 2,
                 "fs: error: " + text + ": not for backend " + backend + ", only for " + rest);
  };
  const char *cpu = "cpu\n", *cuda = "cuda and cuda-emulated\n", *fast = "cpu, cuda and cuda-emulated\n";
  for (const char* backend : {"reference", "cuda-emulated", "cuda"})
    refuse(backend, {"--isa", "portable"}, cpu);
  for (const char* backend : {"reference", "cuda-emulated", "cuda"}) refuse(backend, {"--act", "int8"}, cpu);
  for (const char* backend : {"reference", "cpu"}) refuse(backend, {"--device", "0"}, cuda);
  for (const char* backend : {"reference", "cpu"}) refuse(backend, {"--sync"}, cuda);
  for (const char* backend : {"reference", "cpu"}) refuse(backend, {"--step", "persistent"}, cuda);
  refuse("reference", {"--act", "bf16"}, fast);
  refuse("reference", {"--kv", "f16"}, fast);
  for (const char* flag : {"--threads", "--ctx", "--prefill-chunk"}) {
    for (const char* backend : {"reference", "cpu", "cuda-emulated"}) {
      EXPECT_EQ(fs(logits_with({flag, "4", "--backend", backend})).code, 0) << flag << " " << backend;
    }
  }
}

TEST(BackendFlags, WhatAutoDoesNotUseIsSaidOnce) {
  for (const std::vector<std::string>& flag :
       std::vector<std::vector<std::string>>{{"--sync"}, {"--isa", "portable"}}) {
    const Outcome outcome = fs(logits_with(flag));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string backend = Json::parse(outcome.out)["backend"];
    const bool used = (backend == "cpu") == (flag.front() == "--isa");
    const std::string notice = used ? "" : ": not for backend " + backend + ", only for ";
    EXPECT_NE(outcome.err.find(notice), std::string::npos) << outcome.err;
    if (backend == "cpu") {
      EXPECT_EQ(
          outcome.err,
          used ? "" : "fs: --sync: not for backend cpu, only for cuda and cuda-emulated; auto chose cpu\n");
    }
    auto quiet = flag;
    quiet.emplace_back("-q");
    EXPECT_EQ(fs(logits_with(quiet)).err, "");
  }
  const Outcome bench = fs({"bench", "-m", odd, "-p", "2", "-n", "0", "-r", "1", "--no-roofline", "--sync",
                            "--dtype", "f32,bf16,q8_0"});
  EXPECT_EQ(bench.code, 0) << bench.err;
  EXPECT_LE(std::count(bench.err.begin(), bench.err.end(), '\n'), 1) << bench.err;
}

TEST(BackendFlags, OfACommandGoToTheSideThatHasThem) {
  const auto diff = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"layer-diff", "--model", odd, "--tokens", "1,2", "-q"});
    return fs(flags);
  };
  EXPECT_EQ(diff({"--b", "cuda-emulated", "--sync", "--device", "0"}).code, 0);
  EXPECT_EQ(diff({"--b", "cuda-emulated", "--device", "9"}).code, 4);
  expect_error(diff({"--b", "cpu", "--sync"}), 2, "--sync: neither side is cuda or cuda-emulated");
  expect_error(diff({"--b", "cpu", "--device", "0"}), 2, "--device 0: neither side is cuda or cuda-emulated");
  expect_error(diff({"--a", "reference,isa=portable"}), 2, "--isa portable: not for backend reference");
  const auto eval = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"eval", "--model", odd, "--tokens", "1,2,3", "-q"});
    return fs(flags);
  };
  EXPECT_EQ(eval({"--backend", "cpu", "--isa", "portable", "--against", "reference"}).code, 0);
  EXPECT_EQ(eval({"--backend", "cuda-emulated", "--step", "persistent", "--against", "reference"}).code, 0);
  expect_error(eval({"--backend", "reference", "--isa", "portable", "--against", "cpu"}), 2,
               "--isa portable");
  expect_error(eval({"--backend", "cpu", "--kv", "f16", "--against", "reference"}), 2, "--kv f16");
  EXPECT_EQ(eval({"--backend", "cpu", "--kv", "f16", "--against", "reference,kv=f32"}).code, 0);
}

}  // namespace
}  // namespace cli_test

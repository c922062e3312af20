// The parts of the command line that need no process of their own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <new>
#include <random>
#include <thread>

#include "base/error.h"
#include "cli/numbers.h"
#include "cli/run.h"
#include "cli/stop_texts.h"
#include "cli/terminal.h"
#include "cli/verify.h"
#include "cli_process.h"

namespace fs::cli {
namespace {

TEST(StopTexts, HoldsBackWhatMayBeginAStop) {
  StopTexts stops({"abc", "xyz"});
  EXPECT_EQ(stops.push("1a"), "1");
  EXPECT_EQ(stops.push("b"), "");
  EXPECT_EQ(stops.push("a"), "ab");
  EXPECT_EQ(stops.push("bc tail"), "");
  EXPECT_EQ(stops.found(), "abc");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopTexts, AnUnfinishedStopComesOutAtTheEnd) {
  StopTexts stops({"abc"});
  EXPECT_EQ(stops.push("ab"), "");
  EXPECT_EQ(stops.finish(), "ab");
  EXPECT_FALSE(stops.found());
}

TEST(StopTexts, TheFirstToBeCompleteWinsAndTheLongerOfTwo) {
  StopTexts inner({"abcd", "bc"});
  EXPECT_EQ(inner.push("abcd"), "a");
  EXPECT_EQ(inner.found(), "bc");
  StopTexts longer({"c", "abc"});
  EXPECT_EQ(longer.push("1abc"), "1");
  EXPECT_EQ(longer.found(), "abc");
}

TEST(StopTexts, TheResultDoesNotDependOnThePieces) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += static_cast<char>('a' + random() % 2);
    std::vector<std::string> texts(1 + random() % 3);
    for (auto& stop : texts) {
      for (std::size_t i = 0, n = 1 + random() % 4; i < n; ++i) stop += static_cast<char>('a' + random() % 2);
    }
    StopTexts whole(texts), pieces(texts);
    std::string from_whole = whole.push(text), from_pieces;
    from_whole += whole.finish();
    for (const char c : text) {
      if (!pieces.found()) from_pieces += pieces.push(std::string(1, c));
    }
    from_pieces += pieces.finish();
    ASSERT_EQ(from_pieces, from_whole) << text;
    ASSERT_EQ(pieces.found(), whole.found()) << text;
    for (const auto& stop : texts) ASSERT_EQ(from_whole.find(stop), std::string::npos) << text;
    ASSERT_TRUE(text.starts_with(from_whole));
  }
}

TEST(Numbers, Lists) {
  EXPECT_EQ(parse_token_ids(" 1,2 3\n[4]", "x"), (std::vector<TokenId>{1, 2, 3, 4}));
  EXPECT_EQ(parse_token_ids("", "x"), std::vector<TokenId>{});
  EXPECT_EQ(parse_index_list("5,0-2,1", "x", 6), (std::vector<std::size_t>{0, 1, 2, 5}));
  EXPECT_THROW(parse_index_list("0-6", "x", 6), Error);
  EXPECT_THROW(parse_index_list("", "x", 6), Error);
  EXPECT_THROW(parse_number<float>("nan", "x"), Error);
  EXPECT_THROW(parse_number<float>("1e99", "x"), Error);
  EXPECT_THROW(parse_number<float>("", "x"), Error);
  EXPECT_EQ(parse_number<float>("-0.5", "x"), -0.5F);
}

TEST(Verify, Sha256OfAFile) {
  const cli_test::TemporaryDirectory directory;
  cli_test::write_text(directory / "abc", "abc");  // FIPS 180-4's example
  EXPECT_EQ(sha256_of_file(directory / "abc", {}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  cli_test::write_text(directory / "empty", "");
  EXPECT_EQ(sha256_of_file(directory / "empty", {}),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/// Whether there can be a pseudo-terminal at all: a container may lack /dev/pts.
bool has_terminals() {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) return false;
  ::close(terminal);
  return true;
}
constexpr const char* no_terminals = "what is printed on a terminal: no pseudo-terminal here (/dev/pts)";

/// Runs `work` with stderr on a pseudo-terminal and returns what it wrote there.
std::string on_terminal(const std::function<void()>& work) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  ::grantpt(terminal);
  ::unlockpt(terminal);
  const int side = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY), saved = ::dup(STDERR_FILENO);
  ::dup2(side, STDERR_FILENO);
  work();
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  // What was written arrives in pieces, and late on a busy machine: read until a mark behind it arrives.
  const std::string mark = "<end>";
  EXPECT_EQ(::write(side, mark.data(), mark.size()), static_cast<ssize_t>(mark.size()));
  std::string shown;
  while (!shown.ends_with(mark)) {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(terminal, buffer.data(), buffer.size());
    if (got <= 0) break;
    shown.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(side);
  ::close(terminal);
  return shown.substr(0, shown.size() - std::min(shown.size(), mark.size()));
}

void report_for(std::chrono::milliseconds time, bool quiet) {
  ProgressBar bar(quiet);
  const Progress progress = bar.callback();
  progress("load", 0, 100);
  std::this_thread::sleep_for(time);
  progress("load", 50, 100);
}

TEST(ProgressBar, AppearsOnlyOnATerminalAfterASecondAndLeavesNoTrace) {
  if (!has_terminals()) GTEST_SKIP() << no_terminals;
  const std::string shown = on_terminal([] { report_for(std::chrono::milliseconds(1100), false); });
  EXPECT_NE(shown.find("load ["), std::string::npos);
  EXPECT_NE(shown.find("50%"), std::string::npos);
  EXPECT_TRUE(shown.ends_with("\r\x1b[K"));
  EXPECT_EQ(on_terminal([] { report_for(std::chrono::milliseconds(100), false); }), "");
  EXPECT_EQ(on_terminal([] { report_for(std::chrono::milliseconds(1100), true); }), "");
  testing::internal::CaptureStderr();
  report_for(std::chrono::milliseconds(1100), false);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Terminal, ColourOnlyWhereItIsWanted) {
  if (!has_terminals()) GTEST_SKIP() << no_terminals;
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  EXPECT_EQ(on_terminal([] { error_line("x"); }), "fs: \x1b[1;31merror:\x1b[0m x\r\n");
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(on_terminal([] { error_line("x"); }), "fs: error: x\r\n");
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_EQ(on_terminal([] { error_line("x"); }), "fs: error: x\r\n");
}

TEST(Terminal, MessagesAreOneLineWithoutControlCharacters) {
  testing::internal::CaptureStderr();
  error_line("a\nb\x1b[2J");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "fs: error: a\\nb\\x1b[2J\n");
}

TEST(Terminal, AClosedDescriptorIsNotReused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) ::close(fd);
        prepare_process();
        const bool kept = ::open("/dev/null", O_RDWR) > STDERR_FILENO;
        std::_Exit(kept && ::write(STDOUT_FILENO, "x", 1) < 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Interrupt, TheFirstCtrlCSetsAFlagTheSecondKills) {
  {
    const InterruptScope scope;
    EXPECT_NO_THROW(throw_if_interrupted());
    std::raise(SIGINT);
    EXPECT_TRUE(interrupted());
    try {
      throw_if_interrupted();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::interrupted);
    }
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const InterruptScope scope;
        std::raise(SIGINT);
        std::raise(SIGINT);
        std::_Exit(0);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(Run, WhereMemoryRunsOutTheCommandsOwnFlagsAreNamed) {
  const cli_test::TemporaryDirectory directory;
  const std::string prompts = directory / "prompts.jsonl";
  cli_test::write_text(prompts, "{\"tokens\": [1]}");
  const auto hint = [](std::vector<const char*> args) {
    args.insert(args.begin(), "fs");
    args.push_back("--model=synthetic:tiny-odd");
    testing::internal::CaptureStderr();
    const Hooks hooks{[](model::Weights&) { throw std::bad_alloc(); }};
    EXPECT_EQ(run(static_cast<int>(args.size()), args.data(), hooks), 1);
    return testing::internal::GetCapturedStderr();
  };
  const std::string out = "fs: error: out of memory: use ";
  EXPECT_EQ(hint({"generate", "--tokens", "1"}), out + "a smaller model, context (--ctx) or prompt\n");
  EXPECT_EQ(hint({"generate", "--prompts", prompts.c_str()}),
            out + "fewer prompts at once (--parallel), a smaller model or context (--ctx)\n");
  EXPECT_EQ(hint({"layer-diff", "--tokens", "1"}), out + "a smaller model, context (--ctx) or prompt\n");
  EXPECT_EQ(hint({"eval", "--tokens", "1,2"}), out + "a smaller model or window (--ctx)\n");
  EXPECT_EQ(hint({"bench", "--no-roofline"}), out + "a smaller model or lower -p, -n, -d or -np\n");
}

TEST(Run, UnexpectedExceptionsAreOneLineAndExitWith1) {
  const std::array<const char*, 5> args = {"fs", "logits", "--model=synthetic:tiny-odd", "--tokens", "1"};
  const auto run_with = [&](const Hooks& hooks) {
    testing::internal::CaptureStderr();
    const int code = run(static_cast<int>(args.size()), args.data(), hooks);
    EXPECT_EQ(code, 1);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(run_with({[](model::Weights&) { throw std::bad_alloc(); }}),
            "fs: error: out of memory: use a smaller model, context (--ctx) or prompt\n");
  EXPECT_EQ(run_with({[](model::Weights&) { throw std::logic_error("odd"); }}), "fs: error: odd\n");
}

}  // namespace
}  // namespace fs::cli

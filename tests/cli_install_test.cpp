// What `cmake --install` gives: a program that can be moved, and completions and a manual that know every
// flag.
#include <regex>
#include <set>

#include "cli_process.h"

namespace cli_test {
namespace {

const std::vector<std::string> commands = {"generate", "logits",   "layer-diff", "eval",
                                           "bench",    "tokenize", "detokenize", "inspect",
                                           "quantize", "synth",    "devices"};

std::set<std::string> flags_of(const std::string& command) {
  const std::string help = fs({command, "--help"}).out;
  const std::regex flag("--[a-z][a-z-]*");
  std::set<std::string> flags;
  const std::string options =
      help.substr(help.find("Options:"), help.find("Examples:") - help.find("Options:"));
  std::istringstream lines(options);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  -")) continue;
    const std::string names = line.substr(2, line.find("  ", 2) - 2);
    for (std::sregex_iterator it(names.begin(), names.end(), flag), end; it != end; ++it)
      flags.insert(it->str());
  }
  return flags;
}

TEST(Share, ManualAndCompletionsKnowEveryFlag) {
  const std::string share = FS_SOURCE_DIR "/share/";
  std::string manual = read_text(share + "man/man1/fs.1");
  manual = std::regex_replace(manual, std::regex(R"(\\-)"), "-");
  const std::string zsh = read_text(share + "zsh/site-functions/_fs");
  const std::string fish = read_text(share + "fish/vendor_completions.d/fs.fish");
  for (const std::string& command : commands) {
    const auto flags = flags_of(command);
    EXPECT_GE(flags.size(), 4U) << command;
    for (const std::string& flag : flags) {
      const std::regex whole(flag + "([^a-z-]|$)");
      EXPECT_TRUE(std::regex_search(manual, whole)) << "fs.1: " << command << " " << flag;
      EXPECT_TRUE(std::regex_search(zsh, whole)) << "_fs: " << command << " " << flag;
      EXPECT_TRUE(std::regex_search(fish, std::regex("-l " + flag.substr(2) + "( |\n)")))
          << "fs.fish: " << command << " " << flag;
    }
  }
}

TEST(Share, BashCompletesTheFirstSpellingOfEveryFlagAndNothingElse) {
  for (const std::string& command : commands) {
    Command bash;
    bash.program = "/bin/bash";
    bash.args = {"-c", "source " FS_SOURCE_DIR "/share/bash-completion/completions/fs; _fs_flags " + command};
    std::istringstream words(run(bash).out);
    std::set<std::string> completed;
    for (std::string word; words >> word;) completed.insert(word);
    const auto flags = flags_of(command);
    for (const std::string& word : completed) EXPECT_TRUE(flags.contains(word)) << command << " " << word;
    const std::set<std::string> other_spellings = {"--temperature",        "--top-k",   "--top-p", "--min-p",
                                                   "--repetition-penalty", "--ctx-size"};
    for (const std::string& flag : flags) {
      EXPECT_NE(completed.contains(flag), other_spellings.contains(flag)) << command << " " << flag;
    }
  }
}

TEST(Install, CanBeMovedAndFindsItsModel) {
  const TemporaryDirectory directory;
  Command install;
  install.program = "/usr/bin/env";
  install.args = {"cmake", "--install", FS_BINARY_DIR, "--prefix", directory / "first"};
  ASSERT_EQ(run(install).code, 0);
  std::filesystem::rename(directory / "first", directory / "second");

  Command generate;
  generate.program = directory / "second/bin/fs";
  generate.args = {"generate", "The capital of France is"};
  const Outcome outcome = run(generate);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with(" Paris")) << outcome.out;
  EXPECT_NE(outcome.err.find("bundled tiny model"), std::string::npos) << outcome.err;
  for (const char* file :
       {"share/man/man1/fs.1", "share/bash-completion/completions/fs", "share/zsh/site-functions/_fs",
        "share/fish/vendor_completions.d/fs.fish", "share/fs/tiny/model.safetensors"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(directory / (std::string("second/") + file))) << file;
  }

  std::filesystem::remove_all(directory / "second/share/fs");
  expect_error(run(generate), 3, "no model");
}

}  // namespace
}  // namespace cli_test

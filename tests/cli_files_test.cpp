// What the program does to files: outputs go where they were meant to and nowhere else, inputs are not waited
// for, and a signal leaves nothing behind.
#include <sys/stat.h>

#include "cli_process.h"

namespace cli_test {
namespace {

namespace files = std::filesystem;

Outcome shell(const std::string& script) {
  Command command;
  command.program = "/bin/sh";
  command.args = {"-c", "fs=" FS_BINARY_DIR "/bin/fs; " + script};
  return run(command);
}

std::string copy_of_tiny(const TemporaryDirectory& directory) {
  files::copy(tiny_model(), directory / "model", files::copy_options::recursive);
  return directory / "model";
}

TEST(Files, AnOutputIsNoInputAndNoOtherOutput) {
  const TemporaryDirectory directory;
  const std::string model = copy_of_tiny(directory);
  const std::string weights = model + "/model.safetensors", before = read_text(weights);
  expect_error(fs({"logits", "-q", "-m", model, "Hi", "--out", weights}), 2, weights);
  expect_error(fs({"logits", "-q", "-m", model, "Hi", "--record", weights}), 2, weights);
  expect_error(fs({"logits", "-q", "-m", model, "Hi", "--out", model + "/config.json"}), 2, "config.json");
  EXPECT_EQ(read_text(weights), before);

  const std::string prompt = directory / "prompt.txt", output = directory / "output";
  write_text(prompt, "Hi");
  expect_error(fs({"logits", "-q", "-m", model, "-f", prompt, "--out", prompt}), 2, "prompt.txt");
  EXPECT_EQ(read_text(prompt), "Hi");
  expect_error(fs({"logits", "-q", "-m", model, "Hi", "--out", output, "--record", output}), 2, "output");
  const std::string record = directory / "record";
  ASSERT_EQ(fs({"logits", "-q", "-m", model, "Hi", "--record", record}).code, 0);
  const std::string recorded = read_text(record);
  expect_error(fs({"layer-diff", "-q", "-m", model, "--a", "dump:" + record, "--svg", record}), 2, "record");
  EXPECT_EQ(read_text(record), recorded);
  EXPECT_EQ(fs({"logits", "-q", "-m", model, "Hi", "--record", record}).code, 0)
      << "an old output is replaced";
}

TEST(Files, OutputsThatCannotBeWrittenAreSaidBeforeTheWork) {
  const TemporaryDirectory directory;
  for (const char* flag : {"--out", "--record"}) {
    expect_error(fs({"logits", "-q", "-m", tiny_model(), "Hi", flag, directory / "none/x"}), 1, "none/x");
    expect_error(fs({"logits", "-q", "-m", tiny_model(), "Hi", flag, directory.path().string()}), 1,
                 "directory");
    expect_error(fs({"logits", "-q", "-m", tiny_model(), "Hi", flag, "-"}), 2, "/dev/stdout");
    expect_error(fs({"logits", "-q", "-m", tiny_model(), "Hi", flag, "/dev/full"}), 1, "/dev/full");
  }
  EXPECT_TRUE(files::is_character_file("/dev/full"));
}

TEST(Files, AnEmptyValueIsAValue) {
  const Outcome outcome =
      fs({"generate", "-q", "-m", tiny_model(), "-n", "8", "--stop=", "The capital of France is"});
  expect_error(outcome, 2, "empty stop text");
  EXPECT_EQ(fs({"tokenize", "-m", tiny_model(), "--prompt=", "extra"}).code, 2);
  EXPECT_EQ(fs({"tokenize", "-q", "-m", tiny_model(), "--prompt="}).out, "\n");
  EXPECT_EQ(fs({"tokenize", "-q", "-m", tiny_model(), "-p", "--x="}).out,
            fs({"tokenize", "-q", "-m", tiny_model(), "--", "--x="}).out);
  expect_error(fs({"logits", "-m", tiny_model(), "--tokens", "1", "--ctx="}), 2, "--ctx");
  expect_error(fs({"logits", "-m", tiny_model(), "--tokens", "1",
                   "--ctx=\x1e"
                   "5"}),
               2, "--ctx");
  expect_error(fs({"logits", "-m", tiny_model(), "--tokens", "1", "--out="}), 2, "file");
}

TEST(Files, APipeInAModelIsNotWaitedFor) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors",
                           "model.safetensors.index.json"}) {
    SCOPED_TRACE(name);
    const TemporaryDirectory directory;
    const std::string model = copy_of_tiny(directory);
    if (std::string_view(name).ends_with("index.json")) files::remove(model + "/model.safetensors");
    const std::string file = model + "/" + name;
    files::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    expect_error(fs({"logits", "-q", "-m", model, "Hi"}), 3, name);
    const Outcome inspected = fs({"inspect", "-q", model});
    EXPECT_EQ(inspected.code, 3) << inspected.err;
    EXPECT_NE(inspected.err.find(name), std::string::npos) << inspected.err;
  }
}

TEST(Files, ALinkToNothingIsNoAbsentFile) {
  for (const char* name : {"generation_config.json", "tokenizer.json"}) {
    SCOPED_TRACE(name);
    const TemporaryDirectory directory;
    const std::string model = copy_of_tiny(directory);
    const std::string file = model + "/" + name;
    files::remove(file);
    files::create_symlink("nothing", file);
    expect_error(fs({"logits", "-q", "-m", model, "Hi"}), 3, name);
    const Outcome inspected = fs({"inspect", "-q", model});
    EXPECT_EQ(inspected.code, 3) << inspected.err;
    EXPECT_NE(inspected.err.find(name), std::string::npos) << inspected.err;
  }
}

TEST(Files, ASignalLeavesNoTemporary) {
  for (const std::string signal : {"TERM", "HUP", "INT"}) {
    SCOPED_TRACE(signal);
    const TemporaryDirectory directory;
    const std::string to = directory / "synth";
    // The shell starts background jobs with SIGINT ignored; python gives it back its default.
    const Outcome outcome = shell(
        "python3 -c 'import os,signal,sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
        "os.execv(sys.argv[1], sys.argv[1:])' $fs synth qwen3-0.6b " +
        to +
        " -q & p=$!; "
        "while ! ls " +
        to +
        "/.fs-* >/dev/null 2>&1; do kill -0 $p || exit 9; sleep 0.01; done; "
        "kill -" +
        signal + " $p; wait $p");
    EXPECT_TRUE(outcome.code == 143 || outcome.code == 129 || outcome.code == 130)
        << outcome.code << outcome.err;
    EXPECT_TRUE(files::is_empty(to));
  }
}

TEST(Files, OneOfTwoWritersSaysThatItLost) {
  const TemporaryDirectory directory;
  const std::string to = directory / "synth";
  const Outcome outcome = shell("$fs synth tiny-odd " + to + " & $fs synth tiny-odd " + to +
                                " --seed 2; a=$?; wait $!; echo $a$?");
  EXPECT_TRUE(outcome.out == "01\n" || outcome.out == "10\n") << outcome.out << outcome.err;
}

TEST(Files, AModelThatIsCutShortIsAnError) {
  const TemporaryDirectory directory;
  const std::string model = copy_of_tiny(directory);
  const std::string out = directory / "out";
  const Outcome outcome =
      shell("$fs generate -q -m " + model + " --ignore-eos -n 2000 --backend reference Once >" + out +
            " & while [ ! -s " + out + " ]; do sleep 0.01; done; truncate -s 100000 " + model +
            "/model.safetensors; wait $!");
  expect_error(outcome, 3, "cut short");
}

}  // namespace
}  // namespace cli_test

#pragma once
// Runs the built programs as a user's shell does: arguments in; stdout, stderr and exit status out.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cli_test {

struct Outcome {
  int code = -1;   ///< exit code; -1 if a signal ended the program
  int signal = 0;  ///< the signal that ended it
  std::string out, err;
};

struct Command {
  std::vector<std::string> args;
  std::string program = FS_BINARY_DIR "/bin/fs";
  std::optional<std::string> input = std::nullopt;  ///< piped to stdin; /dev/null if absent
  std::map<std::string, std::string> environment = {};
  std::string stdout_file = "";  ///< instead of being captured; "-" closes stdout
  /// Called with the output so far whenever there is more; true sends SIGINT, once.
  std::function<bool(const std::string& out)> interrupt_when = {};
  std::size_t close_after = SIZE_MAX;  ///< closes the reading end of stdout after so many bytes
  std::chrono::seconds timeout{120};
};

inline std::string tiny_model() { return FS_SOURCE_DIR "/golden/tiny"; }

/// What the program sees: nothing of the tester's own models and settings.
inline std::vector<std::string> clean_environment(const Command& command) {
  std::map<std::string, std::string> variables = {
      {"HF_HUB_CACHE", "/nonexistent"}, {"TERM", "xterm"}, {"LC_ALL", "C.UTF-8"}};
  for (const char* name : {"PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  for (const auto& [name, value] : command.environment) variables[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) lines.push_back(name + "=" + value);
  return lines;
}

inline std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

inline Outcome run(const Command& command) {
  std::array<int, 2> in{}, out{}, err{};
  for (auto* ends : {&in, &out, &err}) {
    if (::pipe2(ends->data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (command.input) {
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  } else {
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  }
  if (command.stdout_file == "-") {
    posix_spawn_file_actions_addclose(&actions, 1);
  } else if (!command.stdout_file.empty()) {
    posix_spawn_file_actions_addopen(&actions, 1, command.stdout_file.c_str(), O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  }
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);

  std::vector<std::string> arguments = {command.program}, environment = clean_environment(command);
  arguments.insert(arguments.end(), command.args.begin(), command.args.end());
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, command.program.c_str(), &actions, nullptr,
                                   pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  for (const int fd : {in[0], out[1], err[1]}) ::close(fd);
  if (failed != 0) throw std::runtime_error("cannot start " + command.program);

  // All inputs are smaller than a pipe's buffer, so that this cannot block.
  std::signal(SIGPIPE, SIG_IGN);
  if (command.input && ::write(in[1], command.input->data(), command.input->size()) < 0) {
    // The program did not read it, which is its right.
  }
  ::close(in[1]);

  Outcome outcome;
  const auto deadline = std::chrono::steady_clock::now() + command.timeout;
  bool interrupted = false, out_open = true, err_open = true;
  const auto drain = [](int fd, std::string& to) {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got > 0) to.append(buffer.data(), static_cast<std::size_t>(got));
    return got > 0;
  };
  while (out_open || err_open) {
    std::array<pollfd, 2> waiting = {
        {{out_open ? out[0] : -1, POLLIN, 0}, {err_open ? err[0] : -1, POLLIN, 0}}};
    ::poll(waiting.data(), waiting.size(), 50);
    if (waiting[0].revents != 0) out_open = drain(out[0], outcome.out);
    if (waiting[1].revents != 0) err_open = drain(err[0], outcome.err);
    if (out_open && outcome.out.size() >= command.close_after) {
      ::close(out[0]);
      out_open = false;
    }
    if (!interrupted && command.interrupt_when && command.interrupt_when(outcome.out)) {
      interrupted = true;
      ::kill(pid, SIGINT);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << command.program << " ran past its time; stderr: " << outcome.err;
      ::kill(pid, SIGKILL);
      break;
    }
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (outcome.out.size() < command.close_after) ::close(out[0]);
  ::close(err[0]);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  return outcome;
}

inline Outcome fs(std::vector<std::string> args, std::optional<std::string> input = std::nullopt) {
  Command command;
  command.args = std::move(args);
  command.input = std::move(input);
  return run(command);
}

/// Exactly one line on stderr that starts like an error of ours, and nothing on stdout.
inline void expect_error(const Outcome& outcome, int code, std::string_view needle) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("fs: error: ")) << outcome.err;
  EXPECT_NE(outcome.err.find(needle), std::string::npos) << outcome.err;
}

/// A fresh directory that goes when the test ends.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "fs-cli-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace cli_test

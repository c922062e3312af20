#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/types.h"

namespace fs::cli {

/// To be called first: signals and descriptors 0 to 2 as a command-line program wants them. A broken pipe
/// ends the process quietly, whatever the parent set; a file size limit does not end it; SIGTERM and SIGHUP
/// leave no temporary files; a closed descriptor is never reused for a file that is opened later.
void prepare_process();

bool stdin_is_terminal();
bool stderr_is_terminal();
/// Whether the answer may be coloured: standard output is a terminal, and NO_COLOR is not set.
bool colour_on_stdout();

/// Standard output carries only the answer. print() buffers; flush() writes and must be called before
/// anything slow and at the end. Throws Error(failed) if it cannot be written (a full disk), and then drops
/// what is buffered.
void print(std::string_view text);
void flush();
/// A second answer, on standard error, written at once. Throws Error(failed) as flush() does.
void print_aside(std::string_view text);

/// `message` in one line of bounded length. Messages and titles quote file names and other people's text:
/// control characters in them must neither break the line nor reach the terminal.
std::string one_line(std::string_view message);

/// One line on stderr: "fs: message".
void notice(std::string_view message);
/// One line on stderr: "fs: error: message". The prefix is red on a terminal, unless NO_COLOR is set.
void error_line(std::string_view message);

/// While one lives, the first Ctrl-C only sets a flag that long work looks at; the second kills at once.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};
bool interrupted();
/// Throws Error(interrupted) once Ctrl-C was pressed.
void throw_if_interrupted();

/// One line on stderr, only on a terminal, that appears when a stage has lasted over a second and leaves no
/// trace. Any thread may report.
class ProgressBar {
 public:
  explicit ProgressBar(bool quiet);
  ~ProgressBar() { erase(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// What long work calls; throws Error(interrupted) after Ctrl-C. The bar must outlive it.
  Progress callback();
  /// Clears the line and forgets the stage. To be called before anything else is printed.
  void erase();

 private:
  using Clock = std::chrono::steady_clock;
  void report(std::string_view stage, std::uint64_t done, std::uint64_t total);

  bool enabled_;
  std::mutex mutex_;
  std::string stage_;
  Clock::time_point stage_begin_, drawn_;
  bool visible_ = false;
};

}  // namespace fs::cli

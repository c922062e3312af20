#include "cli/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fs::cli {
namespace {

constexpr std::size_t output_buffer_bytes = std::size_t{1} << 16;

std::string& output_buffer() {
  static std::string buffer;
  return buffer;
}

/// Writes all of `text`, or says with errno why it cannot.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Messages quote file names and other people's text: control characters in them must neither break the line
/// nor reach the terminal.
std::string one_line(std::string_view message) {
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  return line;
}

bool colour_on(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  if (no_colour != nullptr && *no_colour != '\0') return false;
  const char* terminal = std::getenv("TERM");
  return ::isatty(fd) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::atomic<bool> interrupt_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");
struct sigaction action_before {};

extern "C" void on_interrupt(int) { interrupt_flag.store(true); }

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

void prepare_process() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &action, nullptr);
  action.sa_handler = SIG_IGN;  // a limit on file sizes fails a write, as a full disk does
  ::sigaction(SIGXFSZ, &action, nullptr);
  // Opened the wrong way round, so that using a descriptor the user has closed is still the error it was.
  if (::fcntl(STDIN_FILENO, F_GETFD) < 0) ::open("/dev/null", O_WRONLY);
  if (::fcntl(STDOUT_FILENO, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
  if (::fcntl(STDERR_FILENO, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
}

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }
bool colour_on_stdout() { return colour_on(STDOUT_FILENO); }

void print(std::string_view text) {
  output_buffer() += text;
  if (output_buffer().size() >= output_buffer_bytes) flush();
}

void flush() {
  const std::string pending = std::exchange(output_buffer(), {});
  if (!write_all(STDOUT_FILENO, pending)) {
    fail(ExitCode::failed, "cannot write to standard output: {}", std::strerror(errno));
  }
}

void notice(std::string_view message) {
  write_all(STDERR_FILENO, fmt::format("fs: {}\n", one_line(message)));
}

void error_line(std::string_view message) {
  const bool colour = colour_on(STDERR_FILENO);
  write_all(STDERR_FILENO, fmt::format("fs: {}error:{} {}\n", colour ? "\x1b[1;31m" : "",
                                       colour ? "\x1b[0m" : "", one_line(message)));
}

InterruptScope::InterruptScope() {
  interrupt_flag = false;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  // Back to the default after the first one: a second Ctrl-C needs nothing of us to work.
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  ::sigaction(SIGINT, &action, &action_before);
}

InterruptScope::~InterruptScope() { ::sigaction(SIGINT, &action_before, nullptr); }

bool interrupted() { return interrupt_flag; }

void throw_if_interrupted() {
  if (interrupted()) fail(ExitCode::interrupted, "interrupted");
}

ProgressBar::ProgressBar(bool quiet) : enabled_(!quiet && stderr_is_terminal()) {}

Progress ProgressBar::callback() {
  return [this](std::string_view stage, std::uint64_t done, std::uint64_t total) {
    throw_if_interrupted();
    if (enabled_) report(stage, done, total);
  };
}

void ProgressBar::report(std::string_view stage, std::uint64_t done, std::uint64_t total) {
  constexpr auto patience = std::chrono::seconds(1);
  constexpr auto redraw_interval = std::chrono::milliseconds(100);
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (stage != stage_) {
    stage_ = stage;
    stage_begin_ = now;
  }
  if (now - stage_begin_ < patience || now - drawn_ < redraw_interval) return;
  drawn_ = now;
  visible_ = true;

  const double share = total == 0 ? 0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const std::size_t around = stage.size() + sizeof(" [] 100%");
  const std::size_t columns = terminal_columns();
  const std::size_t width = columns > around + 4 ? std::min<std::size_t>(columns - around, 40) : 0;
  const auto full = static_cast<std::size_t>(share * static_cast<double>(width));
  write_all(STDERR_FILENO, fmt::format("\r\x1b[K{} [{:=<{}}{: <{}}] {:3.0f}%", stage, "", full, "",
                                       width - full, 100 * share));
}

void ProgressBar::erase() {
  const std::lock_guard lock(mutex_);
  if (visible_) write_all(STDERR_FILENO, "\r\x1b[K");
  visible_ = false;
  stage_.clear();
}

}  // namespace fs::cli

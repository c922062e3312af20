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

#include "base/atomic_file.h"
#include "base/error.h"

namespace fs::cli {
namespace {

constexpr std::size_t output_buffer_bytes = std::size_t{1} << 16;

std::string& output_buffer() {
  static std::string buffer;
  return buffer;
}

/// Writes all of `text`, or says with errno why it cannot: EINTR after a Ctrl-C.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR && !interrupted()) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void write_answer(int fd, std::string_view name, std::string_view text) {
  if (write_all(fd, text)) return;
  if (errno == EINTR) fail(ExitCode::interrupted, "interrupted");
  fail(ExitCode::failed, "cannot write to {}: {}", name, std::strerror(errno));
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

/// Ends the process as the signal would have, but for the temporaries.
extern "C" void on_end(int signal) {
  remove_temporaries();
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // delivered when this handler returns
}

/// The first sets the flag; a second one needs nothing of the program to work.
extern "C" void on_interrupt(int signal) {
  if (interrupt_flag.exchange(true)) on_end(signal);
}

/// Somebody has cut a mapped file short: there is nothing to go on with.
extern "C" void on_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) return on_end(signal);
  static std::atomic_flag said;
  if (said.test_and_set()) {  // another thread says it and ends the process
    for (;;) ::pause();
  }
  remove_temporaries();
  constexpr std::string_view message =
      "fs: error: a file was cut short while fs was reading it; start again\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message.data(), message.size());
  ::_exit(static_cast<int>(ExitCode::unusable));
}

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
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &action, nullptr);  // too large a file is an error of write()
  action.sa_handler = on_end;
  for (const int signal : {SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);  // nohup ignores
  }
  struct sigaction bus {};
  bus.sa_sigaction = on_bus_error;
  bus.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &bus, nullptr);
  protect_used_files();
  // Opened the wrong way round, so that using a descriptor the user has closed is still the error it was.
  if (::fcntl(STDIN_FILENO, F_GETFD) < 0) ::open("/dev/null", O_WRONLY);
  if (::fcntl(STDOUT_FILENO, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
  if (::fcntl(STDERR_FILENO, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
}

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }
bool colour_on_stdout() { return colour_on(STDOUT_FILENO); }

std::string one_line(std::string_view message) {
  constexpr std::size_t most_bytes = 2000;
  std::string line;
  for (std::size_t i = 0; i < message.size(); ++i) {
    const auto byte = static_cast<unsigned char>(message[i]);
    const auto next = static_cast<unsigned char>(i + 1 < message.size() ? message[i + 1] : 0);
    if (line.size() >= most_bytes && (byte & 0xC0U) != 0x80) return line + "…";
    if (byte == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F control terminals too
      line += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      line += message[i];
    }
  }
  return line;
}

void print(std::string_view text) {
  output_buffer() += text;
  if (output_buffer().size() >= output_buffer_bytes) flush();
}

void flush() { write_answer(STDOUT_FILENO, "standard output", std::exchange(output_buffer(), {})); }

void print_aside(std::string_view text) { write_answer(STDERR_FILENO, "standard error", text); }

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
  action.sa_handler = on_interrupt;  // without SA_RESTART: what waits for input or output is to look
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

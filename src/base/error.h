#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace fs {

/// Process exit codes; the only ones `fs` ever returns.
enum class ExitCode : int {
  ok = 0,
  failed = 1,        ///< a check failed, or a run-time fault
  usage = 2,         ///< wrong command line
  unusable = 3,      ///< a model, tokenizer or golden file is missing, malformed or contradictory
  device = 4,        ///< a device is unusable
  interrupted = 130  ///< Ctrl-C
};

/// The one exception type of the project. what() is a single line for the user: the file, the key or tensor,
/// what was found, what was expected, what to do next. main() prints it and exits with code().
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fs

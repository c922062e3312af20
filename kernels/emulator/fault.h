#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace fs::gpu::emulator {

/// A place in a kernel's source.
struct Where {
  const char* file = "";
  int line = 0;
  std::string text() const {
    const std::string path = file;
    return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), line);
  }
};
/// As the last parameters of a function they hold the place of the call; FS_HERE, inside, is that place.
#define FS_CALLER const char *caller_file = __builtin_FILE(), int caller_line = __builtin_LINE()
#define FS_HERE \
  ::fs::gpu::emulator::Where { caller_file, caller_line }

/// A rule of CUDA that a kernel or its host code broke. Never caught by `fs` itself: it is a bug.
class Fault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws Fault; inside a kernel the message also names the kernel, the block and the thread.
[[noreturn]] void raise(std::string message);
template <class... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  raise(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fs::gpu::emulator

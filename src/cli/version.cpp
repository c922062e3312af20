#include "cli/version.h"

#include <fmt/format.h>

#include <string_view>

#include "cpu/isa.h"

namespace fs::cli {
namespace {

#if defined(__clang__)
constexpr std::string_view compiler = __VERSION__;  // "Clang 14.0.6"
#else
constexpr std::string_view compiler = "g++ " __VERSION__;
#endif

}  // namespace

std::string build_text() {
#if defined(__OPTIMIZE__)
  return fmt::format("fs {} ({})", FS_VERSION, compiler);
#else
  return fmt::format("fs {} ({}, not optimised)", FS_VERSION, compiler);
#endif
}

std::string version_text() {
  std::string kernels;
  for (const cpu::Kernels* one : cpu::available_kernels()) {
    kernels += fmt::format("{}{}", kernels.empty() ? "" : ", ", one->name);
  }
  return fmt::format("{}\ncpu kernels: {}", build_text(), kernels);
}

}  // namespace fs::cli

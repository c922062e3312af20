#include "cpu/isa.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace fs::cpu {

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> available;
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) available.push_back(&avx512bf16_kernels);
  if (avx512) available.push_back(&avx512_kernels);
  // F16C is older than AVX2: no processor has one without the other.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) available.push_back(&avx2_kernels);
#endif
  available.push_back(&portable_kernels);
  return available;
}

const Kernels& choose_kernels(std::string_view isa) {
  const auto available = available_kernels();
  if (isa == "auto") return *available.front();
  std::vector<std::string_view> names = {"auto"};
  for (const Kernels* kernels : available) {
    if (isa == kernels->name) return *kernels;
    names.emplace_back(kernels->name);
  }
  fail(ExitCode::usage, "--isa {}: not on this processor and build, which have: {}", isa,
       fmt::join(names, ", "));
}

}  // namespace fs::cpu

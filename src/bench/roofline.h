#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "bench/probes.h"
#include "bench/statistics.h"
#include "bench/workload.h"

/// The roofline model (Williams, Waterman, Patterson 2009): nothing is faster than the memory it must read
/// and the arithmetic it must do allow.
namespace fs::bench {

/// Operations a second, all threads together.
struct Peak {
  Arithmetic arithmetic;
  std::string_view instructions;  ///< "avx2 fma"
  double best = 0, median = 0;    ///< of several passes
};

/// What some threads of this machine reach, measured now.
struct Roofline {
  std::size_t threads = 0;
  double read_best = 0, read_median = 0;  ///< bytes a second from memory, of several passes
  std::vector<Peak> peaks;                ///< fp32 first; only what the processor has

  /// The peak of an arithmetic, or fp32's where the processor has no instructions for it.
  const Peak& peak(Arithmetic arithmetic) const;
};

/// Takes about a second and 512 MiB (more where caches are larger). Progress: stage "roofline", in passes.
/// Throws Error(failed) without the memory or the threads.
Roofline measure_roofline(std::size_t threads, const Progress& progress = {});

enum class Bound { memory, arithmetic };

/// The least time that a cost can take, and what it is spent on.
struct Limit {
  double seconds = 0;
  Bound bound = Bound::memory;
};
/// `products`: how many of the arithmetic's own a product of the model takes.
Limit limit(const Cost& cost, const Roofline& roofline, Arithmetic arithmetic, double products = 1);

}  // namespace fs::bench

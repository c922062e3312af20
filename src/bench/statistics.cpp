#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace fs::bench {

Summary summarize(std::span<const double> samples) {
  const auto n = static_cast<double>(samples.size());
  Summary summary;
  summary.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double squares = 0;
  for (const double sample : samples) squares += (sample - summary.mean) * (sample - summary.mean);
  if (samples.size() > 1) summary.deviation = std::sqrt(squares / (n - 1));
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  summary.median = sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  return summary;
}

}  // namespace fs::bench

#pragma once
#include <span>

namespace fs::bench {

/// What is said of a few measurements of one thing.
struct Summary {
  double mean = 0;
  double deviation = 0;  ///< of the sample: squares divided by n − 1; 0 of a single measurement
  double median = 0;     ///< of an even number, the mean of the middle two
};

/// samples: [n], n ≥ 1, in any order.
Summary summarize(std::span<const double> samples);

}  // namespace fs::bench

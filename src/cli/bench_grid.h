#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "cli/options.h"

/// The flags of `fs bench` that may have several values, of which every combination is measured.
namespace fs::cli {

/// A flag whose value is a word of ComputeOptions. A new one is a line in bench_axes.
struct BenchAxis {
  const char* name;                    ///< "dtype": the flag without dashes, the key in CSV and JSON
  std::string ComputeOptions::*value;  ///< where its value goes; what stands there is the default
  const std::vector<std::string>& choices;
  const char* help;
};
extern const std::vector<BenchAxis> bench_axes;

struct BenchGrid {
  std::vector<std::vector<std::string>> values;  ///< [bench_axes]
  std::vector<std::size_t> threads;              ///< 0, not given: as many as there are processors
  ComputeOptions others;                         ///< what has one value: --prefill-chunk, --device, --sync
};
/// Declares the flags; `grid` begins as the defaults.
void add_grid(CLI::App& command, BenchGrid& grid);

/// Every combination, the last flag changing fastest; --dtype, whose change converts all weights, slowest.
std::vector<ComputeOptions> combinations(const BenchGrid& grid);

/// Values separated by commas: each a number, or one of some words. Throws Error(usage) naming the flag.
CLI::Option* add_counts(CLI::App& command, const std::string& names, std::vector<std::size_t>& values,
                        std::size_t lowest, std::size_t highest, const std::string& help);
CLI::Option* add_choices(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                         const std::vector<std::string>& choices, const std::string& help);

}  // namespace fs::cli

#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

/// Loops that do one thing as fast as a thread can: what a roofline is measured with.
namespace fs::bench {

/// What products are computed in.
enum class Arithmetic { fp32, bf16, int8 };

/// The fastest way to multiply and add that this processor has for one kind of numbers.
struct PeakProbe {
  Arithmetic arithmetic;
  std::string_view instructions;  ///< "avx2 fma"
  double operations;              ///< of a round; a multiplication and an addition are two
  /// Multiplies ones and adds up the products, in enough independent sums to keep every unit busy. Returns
  /// the sum of all: exactly half of the operations done, for up to 2¹⁶ rounds.
  double (*run)(std::size_t rounds);
};

/// One for each kind of numbers that this processor has instructions for, fp32 always and first.
std::vector<PeakProbe> peak_probes();

/// Reads memory as the CPU backend's kernels do: four streams of neighbouring lines side by side, since
/// prefetchers follow each only to the end of its page. `bytes` is a multiple of 256 and `from` of 16.
/// Returns the exclusive or of all 64-bit words.
std::uint64_t read_memory(const std::byte* from, std::size_t bytes);

}  // namespace fs::bench

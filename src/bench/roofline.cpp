#include "bench/roofline.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>

#include "cpu/pool.h"
#include "model/storage.h"

namespace fs::bench {
namespace {

constexpr std::size_t read_bytes = std::size_t{1} << 29;  // beyond any last-level cache's reach
constexpr std::size_t passes = 16;
/// Memory is handed out as the CPU backend hands out weights: up to 128 KiB at a time.
constexpr std::size_t line_bytes = 4096, lines_at_once = 32;
/// Arithmetic comes in pieces of some 20 µs, so that all threads finish together; a pass takes some 10 ms.
constexpr std::size_t rounds_of_piece = 64, pieces_of_thread = 512;

/// Units a second of each pass, one pass at a time.
std::vector<double> rates(double units, const std::function<void()>& pass,
                          const std::function<void()>& after) {
  std::vector<double> found;
  for (std::size_t i = 0; i < passes; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    pass();
    found.push_back(units / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    after();
  }
  return found;
}

double best(const std::vector<double>& rates) { return *std::max_element(rates.begin(), rates.end()); }

}  // namespace

const Peak& Roofline::peak(Arithmetic arithmetic) const {
  const auto found =
      std::find_if(peaks.begin(), peaks.end(), [&](const Peak& p) { return p.arithmetic == arithmetic; });
  return found == peaks.end() ? peaks.front() : *found;
}

Roofline measure_roofline(std::size_t threads, const Progress& progress) {
  const std::vector<PeakProbe> probes = peak_probes();
  const std::size_t total = passes * (probes.size() + 1);
  std::size_t done = 0;
  const auto step = [&] {
    if (progress) progress("roofline", done, total);
    ++done;
  };
  Roofline found;
  found.threads = threads;
  cpu::Pool pool(threads);
  std::atomic<std::uint64_t> kept{0};  // what is computed is used, so that it is computed

  const auto memory = model::weight_memory(read_bytes);
  // Each thread writes about what it will read first: its own pages, where memory has a place.
  pool.for_ranges(
      read_bytes / line_bytes, lines_at_once, [&](std::size_t begin, std::size_t end, std::size_t) {
        std::fill(memory.get() + begin * line_bytes, memory.get() + end * line_bytes, std::byte{1});
      });
  const auto read = rates(
      static_cast<double>(read_bytes),
      [&] {
        pool.for_ranges(
            read_bytes / line_bytes, lines_at_once, [&](std::size_t begin, std::size_t end, std::size_t) {
              kept.fetch_xor(read_memory(memory.get() + begin * line_bytes, (end - begin) * line_bytes),
                             std::memory_order_relaxed);
            });
      },
      step);
  found.read_best = best(read);
  found.read_median = summarize(read).median;

  for (const PeakProbe& probe : probes) {
    const std::size_t pieces = threads * pieces_of_thread;
    const auto reached = rates(
        probe.operations * static_cast<double>(rounds_of_piece * pieces),
        [&] {
          pool.for_each(pieces, [&](std::size_t, std::size_t) {
            kept.fetch_xor(static_cast<std::uint64_t>(probe.run(rounds_of_piece)), std::memory_order_relaxed);
          });
        },
        step);
    found.peaks.push_back({probe.arithmetic, probe.instructions, best(reached), summarize(reached).median});
  }
  return found;
}

Limit limit(const Cost& cost, const Roofline& roofline, Arithmetic arithmetic) {
  const double memory = cost.bytes / roofline.read_best;
  const double computing = cost.flops / roofline.peak(arithmetic).best;
  return memory >= computing ? Limit{memory, Bound::memory} : Limit{computing, Bound::arithmetic};
}

}  // namespace fs::bench

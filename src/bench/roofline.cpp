#include "bench/roofline.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>

#include "cpu/pool.h"
#include "model/storage.h"

namespace fs::bench {
namespace {

/// Passes are short, a few milliseconds, and many: some of them find the machine quiet. Each reads another
/// part of a memory so large that it is in no cache when its turn comes again.
constexpr std::size_t passes = 128, parts = 8;
constexpr std::size_t least_bytes = std::size_t{1} << 29;

/// Memory is handed out as the CPU backend hands out weights: up to 128 KiB at a time.
constexpr std::size_t line_bytes = 4096, lines_at_once = 32;
/// Arithmetic comes in pieces of some 20 µs, so that all threads finish together.
constexpr std::size_t rounds_of_piece = 64, pieces_of_thread = 64;

/// 512 MiB, or eight times a last-level cache that is larger than most.
std::size_t memory_bytes() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (cache > 0) return std::max(least_bytes, static_cast<std::size_t>(cache) / 65536 * 65536 * 8);
#endif
  return least_bytes;
}

/// Units a second of each pass.
std::vector<double> rates(double units, const std::function<void(std::size_t index)>& pass,
                          const std::function<void()>& before) {
  std::vector<double> found;
  for (std::size_t i = 0; i < passes; ++i) {
    before();
    const auto begin = std::chrono::steady_clock::now();
    pass(i);
    found.push_back(units / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
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
  const std::size_t total = parts + passes * (probes.size() + 1);
  std::size_t done = 0;
  const auto step = [&] {
    if (progress) progress("roofline", done, total);
    ++done;
  };
  Roofline found;
  found.threads = threads;
  cpu::Pool pool(threads);
  std::atomic<std::uint64_t> kept{0};  // what is computed is used, so that it is computed

  const std::size_t bytes = memory_bytes(), lines = bytes / line_bytes;
  const auto memory =
      model::weight_memory(bytes, "memory to be read by the roofline (--no-roofline does without)");
  // Each thread writes about what it will read: its own pages, where memory has a place. Part by part, so
  // that an interruption is noticed.
  for (std::size_t part = 0; part < parts; ++part) {
    step();
    std::byte* const at = memory.get() + part * (bytes / parts);
    pool.for_ranges(lines / parts, lines_at_once, [&](std::size_t begin, std::size_t end, std::size_t) {
      std::fill(at + begin * line_bytes, at + end * line_bytes, std::byte{1});
    });
  }
  const auto read = rates(
      static_cast<double>(bytes / parts),
      [&](std::size_t index) {
        const std::byte* const part = memory.get() + index % parts * (bytes / parts);
        pool.for_ranges(lines / parts, lines_at_once, [&](std::size_t begin, std::size_t end, std::size_t) {
          kept.fetch_xor(read_memory(part + begin * line_bytes, (end - begin) * line_bytes),
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
        [&](std::size_t) {
          pool.for_each(pieces, [&](std::size_t, std::size_t) {
            kept.fetch_xor(static_cast<std::uint64_t>(probe.run(rounds_of_piece)), std::memory_order_relaxed);
          });
        },
        step);
    found.peaks.push_back({probe.arithmetic, probe.instructions, best(reached), summarize(reached).median});
  }
  return found;
}

Limit limit(const Cost& cost, const Roofline& roofline, Arithmetic arithmetic, double products) {
  const double memory = cost.bytes / roofline.read_best;
  const double computing = products * cost.flops / roofline.peak(arithmetic).best;
  return memory >= computing ? Limit{memory, Bound::memory} : Limit{computing, Bound::arithmetic};
}

}  // namespace fs::bench

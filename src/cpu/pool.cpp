#include "cpu/pool.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/thread_pool.h"

namespace fs::cpu {
namespace {

/// Tells the processor that this is a waiting loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns once `value` is no longer `old`: spins, then sleeps.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old, std::size_t spins) {
  for (std::size_t spin = 0; spin < spins; ++spin) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

Pool::Pool(std::size_t threads)
    : stretches_(std::make_unique<Stretch[]>(threads)),
      // 20 to 50 µs: longer than the gap between two loops of a layer, shorter than a time slice by far.
      // Threads that have no processor of their own must not spin on another's.
      spins_(threads > available_processors() ? 0 : 1000) {
  workers_.reserve(threads - 1);
  try {
    for (std::size_t thread = 1; thread < threads; ++thread) workers_.emplace_back(&Pool::work, this, thread);
  } catch (const std::system_error& error) {
    const std::size_t started = size();
    stop();
    fail(ExitCode::failed, "cannot start {} threads (stopped at {}): {}; use a smaller --threads", threads,
         started, error.what());
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  stopping_ = true;
  ++loops_;
  loops_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Pool::run(std::size_t count, std::size_t most, Call call, const void* body) {
  most_.store(most, std::memory_order_relaxed);
  call_ = call;
  body_ = body;
  remaining_.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
  for (std::size_t thread = 0; thread < size(); ++thread) {
    const std::uint64_t begin = count * thread / size(), end = count * (thread + 1) / size();
    stretches_[thread].bounds.store(end << 32 | begin, std::memory_order_release);
  }
  loops_.fetch_add(1, std::memory_order_seq_cst);
  loops_.notify_all();
  take_ranges(0);
  for (std::uint32_t left = remaining_.load(std::memory_order_acquire); left != 0;) {
    left = wait_for_change(remaining_, left, spins_);
  }
}

void Pool::work(std::size_t thread) {
  for (std::uint32_t seen = 0;;) {
    seen = wait_for_change(loops_, seen, spins_);
    if (stopping_) return;
    take_ranges(thread);
  }
}

/// A claim is what proves that the loop is alive: until its range is reported done, run() cannot return, so
/// call_ and body_ are the ones that belong to it. A thread that comes late finds nothing, or work of the
/// next loop.
void Pool::take_ranges(std::size_t thread) {
  std::uint32_t done = 0;
  for (std::size_t other = 0; other < size(); ++other) {
    auto& bounds = stretches_[(thread + other) % size()].bounds;
    for (std::uint64_t seen = bounds.load(std::memory_order_relaxed);;) {
      const std::uint64_t next = seen & 0xFFFFFFFF, left = (seen >> 32) - next;
      if (left == 0) break;
      // A quarter of what is left: large while there is much to do, single elements at the end.
      const std::uint64_t take =
          std::clamp(left / 4, std::uint64_t{1}, most_.load(std::memory_order_relaxed));
      if (!bounds.compare_exchange_weak(seen, seen + take, std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
        continue;
      }
      call_(body_, next, next + take, thread);
      done += static_cast<std::uint32_t>(take);
      seen = bounds.load(std::memory_order_relaxed);
    }
  }
  if (done != 0 && remaining_.fetch_sub(done, std::memory_order_acq_rel) == done) remaining_.notify_one();
}

}  // namespace fs::cpu

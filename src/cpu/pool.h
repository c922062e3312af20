#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace fs::cpu {

/// Threads that share loops of a few microseconds to a second. Work is handed out piece by piece: every
/// thread starts on a stretch of its own (so that it reads memory in order) and then helps the others.
/// Whoever starts a loop waits for the pieces, not for the threads: one that the system keeps from running
/// delays nobody unless it holds a piece. Waiting spins for some microseconds and then sleeps. One loop at a
/// time; not re-entrant.
class Pool {
 public:
  /// `threads` ≥ 1 counts the caller, which takes part. Throws Error(failed) if they cannot be started.
  explicit Pool(std::size_t threads);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  std::size_t size() const { return workers_.size() + 1; }

  /// Calls body(begin, end, thread) on ranges that cover [0, count) exactly once, count < 2³², thread <
  /// size(), and returns when all are done and their writes are visible. A range has at most `most` elements,
  /// fewer towards the end, so that all threads finish together; how [0, count) is cut is up to chance. body
  /// must not throw.
  template <class Body>
  void for_ranges(std::size_t count, std::size_t most, const Body& body) {
    if (count <= 1 || workers_.empty()) {
      for (std::size_t begin = 0; begin < count; begin += most) {
        body(begin, begin + most < count ? begin + most : count, std::size_t{0});
      }
      return;
    }
    const Call call = [](const void* object, std::size_t begin, std::size_t end, std::size_t thread) {
      (*static_cast<const Body*>(object))(begin, end, thread);
    };
    run(count, most, call, &body);
  }

  /// Calls body(piece, thread) once for every piece in [0, count), as for_ranges does.
  template <class Body>
  void for_each(std::size_t count, const Body& body) {
    for_ranges(count, 1, [&](std::size_t piece, std::size_t, std::size_t thread) { body(piece, thread); });
  }

 private:
  using Call = void (*)(const void* body, std::size_t begin, std::size_t end, std::size_t thread);
  /// The elements a thread starts with, in one word so that a claim sees both ends: end << 32 | next.
  struct alignas(64) Stretch {
    std::atomic<std::uint64_t> bounds{0};
  };

  void run(std::size_t count, std::size_t most, Call call, const void* body);
  void work(std::size_t thread);
  void take_ranges(std::size_t thread);
  void stop();

  std::vector<std::thread> workers_;
  std::unique_ptr<Stretch[]> stretches_;  // [size()]
  std::size_t spins_;
  std::atomic<std::uint64_t> most_{1};
  // Read only by a thread that holds a range of the loop, so never while they change.
  Call call_ = nullptr;
  const void* body_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> loops_{0};      // loops started; the workers wait for it to move
  alignas(64) std::atomic<std::uint32_t> remaining_{0};  // elements of this loop not done yet
  std::atomic<bool> stopping_{false};
};

}  // namespace fs::cpu

#pragma once
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fs {

/// Processors this process may use (its affinity mask), at least 1.
std::size_t available_processors();

/// A fixed set of threads for data-parallel loops. One loop at a time; not re-entrant.
class ThreadPool {
 public:
  /// `threads` ≥ 1 counts the caller, which takes part. Throws Error(failed) if they cannot be started.
  explicit ThreadPool(std::size_t threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  std::size_t size() const { return workers_.size() + 1; }

  /// Calls body(begin, end) on contiguous pieces that cover [0, count) exactly once; returns when all are
  /// done. How [0, count) is cut depends only on count and size(). The first exception thrown is rethrown
  /// here.
  void for_ranges(std::size_t count, const std::function<void(std::size_t begin, std::size_t end)>& body);

 private:
  void stop();
  void work(std::size_t worker);
  void run_piece(std::size_t piece);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, finished_;
  const std::function<void(std::size_t, std::size_t)>* body_ = nullptr;
  std::size_t count_ = 0, generation_ = 0, running_ = 0;
  std::exception_ptr failure_;
  bool stopping_ = false;
};

}  // namespace fs

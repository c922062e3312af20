#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>

#include "base/error.h"

namespace fs {

std::size_t available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return std::max(1U, std::thread::hardware_concurrency());
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&set)));
}

ThreadPool::ThreadPool(std::size_t threads) {
  try {
    for (std::size_t worker = 1; worker < threads; ++worker)
      workers_.emplace_back(&ThreadPool::work, this, worker);
  } catch (const std::system_error& error) {
    const std::size_t started = workers_.size() + 1;
    stop();
    fail(ExitCode::failed, "cannot start {} threads (stopped at {}): {}; use a smaller --threads", threads,
         started, error.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::for_ranges(std::size_t count, const std::function<void(std::size_t, std::size_t)>& body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    count_ = count;
    running_ = workers_.size();
    failure_ = nullptr;
    ++generation_;
  }
  start_.notify_all();
  run_piece(0);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return running_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadPool::work(std::size_t worker) {
  std::size_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
    }
    run_piece(worker);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) finished_.notify_one();
  }
}

void ThreadPool::run_piece(std::size_t piece) {
  const std::size_t begin = count_ * piece / size(), end = count_ * (piece + 1) / size();
  if (begin == end) return;
  try {
    (*body_)(begin, end);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

}  // namespace fs

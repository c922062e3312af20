#include "emulator/scheduler.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>

#include "emulator/memory.h"

namespace fs::gpu::emulator {
namespace {

using State = Thread::State;

/// Thrown through the threads of a grid that has failed, so that their destructors run.
struct Cancelled {};

/// The threads that can run. Each is in it at most once.
class Ready {
 public:
  void reset(std::size_t capacity) {
    ring_.assign(std::max(capacity, ring_.size()), nullptr);
    head_ = size_ = 0;
  }
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  void push(Thread* thread) { at(size_++) = thread; }
  /// Behind all others.
  void push_last(Thread* thread, Order order) {
    if (order != Order::lifo) return push(thread);
    head_ = (head_ + ring_.size() - 1) % ring_.size();
    ++size_;
    at(0) = thread;
  }
  Thread* pop(Order order, std::uint64_t& random) {
    if (order == Order::lifo) return at(--size_);
    if (order == Order::random) {
      random ^= random << 13U;
      random ^= random >> 7U;
      random ^= random << 17U;
      std::swap(at(0), at((random >> 11U) % size_));
    }
    Thread* const thread = at(0);
    head_ = (head_ + 1) % ring_.size();
    --size_;
    return thread;
  }

 private:
  Thread*& at(std::size_t i) { return ring_[(head_ + i) % ring_.size()]; }
  std::vector<Thread*> ring_;
  std::size_t head_ = 0, size_ = 0;
};

struct Grid {
  const Launch* launch = nullptr;
  std::vector<Block> blocks;  // those that are resident, reused
  std::size_t resident = 0;
  Ready ready;
  std::size_t remaining = 0;  // threads that have not ended
  std::size_t at_barrier = 0;
  unsigned barrier_phase = 0;
  std::size_t idle_turns = 0;  // in a row that threads have only yielded
  Thread* running = nullptr;
  bool cancelled = false;
  std::exception_ptr failure;
  std::uint64_t random = 1;
  std::vector<std::unique_ptr<Fiber>> idle, spent;
};
Grid grid;
std::recursive_mutex grid_mutex;
Tag start_tag, end_tag, fence_tag, grid_tags[2];

/// What every fiber runs: the kernel for the thread that it was given.
void thread_main() {
  Thread& thread = *grid.running;
  acquire(&start_tag);
  try {
    grid.launch->body();
    if (!thread.copies.empty()) fault("the thread ends with cp.async copies in flight");
    for (const Barrier& barrier : thread.block->barriers) {
      if (thread.block->at_barriers == 0) break;
      if (barrier.arrived > 0 && barrier.first->barrier_threads == 0) {
        fault("the thread ends while others wait for it at a barrier ({})", barrier.first->where.text());
      }
    }
    for (unsigned lane = 0; thread.warp->waiting != 0 && lane < 32; ++lane) {
      if ((thread.warp->waiting >> lane & 1U) == 0) continue;
      const Thread& other = thread.block->threads[thread.linear - thread.lane + lane];
      if ((other.mask >> thread.lane & 1U) != 0) {
        fault("the thread ends while lane {} waits for it in a warp operation at {} (mask {:08x})", lane,
              other.where.text(), other.mask);
      }
    }
  } catch (const Cancelled&) {
  } catch (...) {
    if (!grid.failure) grid.failure = std::current_exception();
  }
  release(&end_tag);
  thread.state = State::done;
  thread.copies.clear();
  thread.warp->alive &= ~(1U << thread.lane);
  --thread.block->alive;
  --grid.remaining;
  grid.idle_turns = 0;
}
const std::function<void()> job = thread_main;

void run(Thread& thread) {
  grid.running = &thread;
  if (thread.fiber == nullptr) {
    if (grid.idle.empty()) grid.idle.push_back(std::make_unique<Fiber>());
    thread.fiber = grid.idle.back().release();
    grid.idle.pop_back();
    thread.state = State::ready;
    thread.fiber->start(job);
  } else {
    thread.state = State::ready;
    thread.fiber->resume();
  }
  grid.running = nullptr;
  if (thread.state == State::done) {
    // ThreadSanitizer knows a thread by its fiber and its stack: there each serves one thread only.
    (tsan ? grid.spent : grid.idle).emplace_back(std::exchange(thread.fiber, nullptr));
  }
}

std::string describe(const Thread& thread) {
  const char* const waits = thread.state == State::in_warp      ? "a warp operation"
                            : thread.state == State::at_barrier ? "a barrier"
                                                                : "a grid barrier";
  return fmt::format("block {},{} thread {} in {} at {}", thread.block->index.x, thread.block->index.y,
                     thread.linear, waits, thread.where.text());
}

std::exception_ptr deadlock() {
  std::string who;
  std::size_t waiting = 0;
  for (std::size_t b = 0; b < grid.resident; ++b) {
    for (const Thread& thread : grid.blocks[b].threads) {
      if (thread.state == State::done) continue;
      if (waiting++ < 4) who += "; " + describe(thread);
    }
  }
  return std::make_exception_ptr(Fault(fmt::format(
      "{}: deadlock, {} threads wait for others that never come{}", grid.launch->kernel, waiting, who)));
}

void open_block(Block& block, std::size_t id) {
  const Launch& launch = *grid.launch;
  const unsigned n_threads = launch.block.x * launch.block.y * launch.block.z;
  block.index = {static_cast<unsigned>(id % launch.grid.x),
                 static_cast<unsigned>(id / launch.grid.x % launch.grid.y),
                 static_cast<unsigned>(id / launch.grid.x / launch.grid.y)};
  block.alive = static_cast<int>(n_threads);
  block.at_barriers = 0;
  block.threads.resize(n_threads);
  block.warps.assign((n_threads + 31) / 32, {});
  block.shared.open(launch.shared_bytes, 2 * (barriers_per_block + block.warps.size()));
  Tag* tags = block.shared.tags();
  for (Barrier& barrier : block.barriers) barrier = {0, 0, nullptr, std::exchange(tags, tags + 2)};
  for (Warp& warp : block.warps) warp.tags = std::exchange(tags, tags + 2);
  for (unsigned i = 0; i < n_threads; ++i) {
    Thread& thread = block.threads[i];
    thread.index = {i % launch.block.x, i / launch.block.x % launch.block.y,
                    i / launch.block.x / launch.block.y};
    thread.block = &block;
    thread.warp = &block.warps[i / 32];
    thread.linear = i;
    thread.lane = i % 32;
    thread.state = State::fresh;
    thread.warp->alive |= 1U << thread.lane;
  }
}

/// Runs the blocks [first, first + resident) of `order` to their end.
void run_blocks(const std::vector<std::size_t>& order, std::size_t first) {
  const Order policy = schedule().order;
  grid.remaining = grid.at_barrier = grid.idle_turns = 0;
  for (std::size_t b = 0; b < grid.resident; ++b) {
    Block& block = grid.blocks[b];
    open_block(block, order[first + b]);
    grid.remaining += block.threads.size();
  }
  grid.ready.reset(grid.remaining);
  for (std::size_t b = 0; b < grid.resident; ++b) {
    auto& threads = grid.blocks[b].threads;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      const bool backwards = policy == Order::reverse || policy == Order::lifo;
      grid.ready.push(&threads[backwards ? threads.size() - 1 - i : i]);
    }
  }
  release(&start_tag);
  while (!grid.failure && !grid.ready.empty()) run(*grid.ready.pop(policy, grid.random));
  if (!grid.failure && grid.remaining > 0) grid.failure = deadlock();

  grid.cancelled = true;  // after a failure: let the rest unwind
  for (std::size_t b = 0; b < grid.resident; ++b) {
    for (Thread& thread : grid.blocks[b].threads) {
      if (thread.fiber != nullptr) run(thread);
    }
  }
  grid.cancelled = false;
  acquire(&end_tag);
  for (std::size_t b = 0; b < grid.resident; ++b) {
    try {
      grid.blocks[b].shared.close();
    } catch (const Fault& found) {
      if (!grid.failure) {
        grid.failure =
            std::make_exception_ptr(Fault(fmt::format("{}: {}", grid.launch->kernel, found.what())));
      }
    }
  }
  grid.spent.clear();
}

void check(const Launch& launch) {
  const std::size_t threads = std::size_t{launch.block.x} * launch.block.y * launch.block.z;
  if (threads == 0 || threads > 1024 || launch.block.z > 64) {
    fault("{}: launched with blocks of {} threads: 1 to 1024 are possible", launch.kernel, threads);
  }
  if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0 || launch.grid.y > 65535 ||
      launch.grid.z > 65535) {
    fault("{}: launched with a grid of {} x {} x {} blocks", launch.kernel, launch.grid.x, launch.grid.y,
          launch.grid.z);
  }
  if (launch.shared_bytes > SharedMemory::dynamic_limit) {
    fault("{}: launched with {} bytes of dynamic shared memory, the limit is {}", launch.kernel,
          launch.shared_bytes, SharedMemory::dynamic_limit);
  }
}

}  // namespace

Schedule& schedule() {
  static Schedule current;
  return current;
}

void run_grid(const Launch& launch) {
  const std::lock_guard lock(grid_mutex);
  check(launch);
  const std::size_t blocks = std::size_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  grid.launch = &launch;
  grid.random = schedule().seed * 0x9E3779B97F4A7C15U + 12345;
  grid.failure = nullptr;
  std::vector<std::size_t> order(blocks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (schedule().order == Order::reverse) std::reverse(order.begin(), order.end());
  if (schedule().order == Order::random) {
    for (std::size_t i = blocks; i-- > 1;) {
      grid.random = grid.random * 6364136223846793005U + 1442695040888963407U;
      std::swap(order[i], order[(grid.random >> 33U) % (i + 1)]);
    }
  }
  const std::size_t interleaved = launch.cooperative ? blocks : std::max(1U, schedule().resident);
  if (grid.blocks.size() < std::min(interleaved, blocks)) grid.blocks.resize(std::min(interleaved, blocks));
  for (std::size_t first = 0; first < blocks && !grid.failure; first += grid.resident) {
    grid.resident = std::min(interleaved, blocks - first);
    run_blocks(order, first);
  }
  end_streamed(launch.kernel);
  grid.launch = nullptr;
  if (grid.failure) std::rethrow_exception(std::exchange(grid.failure, nullptr));
}

Thread& self() { return *grid.running; }
const Launch& current_launch() { return *grid.launch; }
bool in_kernel() { return grid.running != nullptr; }

void raise(std::string message) {
  if (in_kernel()) {
    const Thread& thread = self();
    message = fmt::format("{}: {} [block {},{},{} thread {}]", grid.launch->kernel, message,
                          thread.block->index.x, thread.block->index.y, thread.block->index.z, thread.linear);
  }
  throw Fault(message);
}

void wait_as(State state) {
  if (state != State::ready) grid.idle_turns = 0;
  self().state = state;
  Fiber::pause();
  if (grid.cancelled) throw Cancelled();
}

void wake(Thread& thread) {
  thread.state = State::ready;
  grid.ready.push(&thread);
}

void yield() {
  // Even a random order lets each thread that can run have one of so many turns.
  if (++grid.idle_turns > 1000 + 64 * grid.ready.size()) {
    fault("deadlock, {} threads spin for a value that nobody will write", grid.ready.size() + 1);
  }
  grid.ready.push_last(&self(), schedule().order);
  wait_as(State::ready);
}

void grid_barrier(Where where) {
  if (!grid.launch->cooperative)
    fault("{}: grid barrier in a kernel not launched as cooperative", where.text());
  self().where = where;
  Tag& tag = grid_tags[grid.barrier_phase & 1U];
  release(&tag);
  if (++grid.at_barrier == grid.remaining) {
    grid.at_barrier = 0;
    ++grid.barrier_phase;
    for (std::size_t b = 0; b < grid.resident; ++b) {
      for (Thread& thread : grid.blocks[b].threads) {
        if (thread.state == State::at_grid_barrier) wake(thread);
      }
    }
  } else {
    wait_as(State::at_grid_barrier);
  }
  acquire(&tag);
}

void fence() {
  release(&fence_tag);
  acquire(&fence_tag);
}

}  // namespace fs::gpu::emulator

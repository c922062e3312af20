#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "emulator/fault.h"
#include "emulator/fiber.h"
#include "emulator/pending_copies.h"
#include "emulator/shared_memory.h"

/// Runs a grid of CUDA threads on one OS thread, each on a fiber of its own. A thread runs until it waits for
/// others (a collective, a barrier) or ends; which one goes on then is a choice, and a right kernel gives the
/// same result for every choice.
namespace fs::gpu::emulator {

/// Which of the threads that could run runs next.
enum class Order {
  fifo,     ///< in turn
  reverse,  ///< in turn, last blocks and threads first
  lifo,     ///< a warp runs as far ahead of the others as it can
  random,
};
struct Schedule {
  Order order = Order::fifo;
  std::uint64_t seed = 1;  ///< of Order::random
  unsigned resident = 1;   ///< blocks that run interleaved; a cooperative launch interleaves all
};
/// The schedule of the launches to come. Tests set it.
Schedule& schedule();

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};
struct Extent3 {
  unsigned x = 1, y = 1, z = 1;
};

/// A kernel call with its arguments bound.
struct Launch {
  const char* kernel = "";
  Extent3 grid, block;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory
  bool cooperative = false;
  std::function<void()> body;  ///< what each thread runs
};

/// Runs it to the end. Throws Fault for whatever a thread, or the grid as a whole, does wrong.
void run_grid(const Launch& launch);

struct Block;
struct Warp;

/// What one lane brings to a warp collective and takes from it.
using WarpOperation = void (*)(const struct Lanes& lanes);

/// A CUDA thread.
struct Thread {
  enum class State { fresh, ready, in_warp, at_barrier, at_grid_barrier, done };

  Index3 index;
  Block* block = nullptr;
  Warp* warp = nullptr;
  unsigned linear = 0, lane = 0;
  State state = State::fresh;
  Fiber* fiber = nullptr;
  // What it waits for.
  Where where;
  WarpOperation operation = nullptr;
  void* payload = nullptr;
  std::uint32_t mask = 0;
  int barrier = 0, barrier_threads = 0;
  bool predicate = false;
  int votes = 0;
  PendingCopies copies;
};

struct Warp {
  std::uint32_t alive = 0, waiting = 0;  // lanes
  unsigned phase = 0;
  Tag* tags = nullptr;  // [2]
};

struct Barrier {
  int arrived = 0;
  unsigned phase = 0;
  Thread* first = nullptr;
  Tag* tags = nullptr;  // [2]
};
inline constexpr int barriers_per_block = 16;

struct Block {
  Index3 index;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::array<Barrier, barriers_per_block> barriers;
  int alive = 0, at_barriers = 0;  // threads
  SharedMemory shared;
};

/// The thread that runs now, and its launch; null outside kernels.
Thread& self();
const Launch& current_launch();
bool in_kernel();

/// The running thread stops until wake() is called on it.
void wait_as(Thread::State state);
void wake(Thread& thread);
/// Lets every other thread that can run go first. Throws Fault once none does anything but this.
void yield();
/// Waits for all threads of a cooperative grid.
void grid_barrier(Where where);
/// __threadfence and its kin.
void fence();

}  // namespace fs::gpu::emulator

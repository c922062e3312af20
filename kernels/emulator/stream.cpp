#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <utility>

#include "base/error.h"
#include "emulator/device.h"
#include "emulator/memory.h"
#include "emulator/stand_in.h"
#include "runtime.h"

/// Streams, events and graphs. Nothing that is given to a stream runs before the host waits for it: host code
/// that forgets to wait reads what it would read on a slow card.
namespace fs::gpu {
inline namespace FS_GPU_BUILD {

using Work = std::function<void()>;

struct Stream::State {
  std::deque<Work> queue;
  std::vector<Work>* recording = nullptr;

  void push(Work work) {
    if (recording != nullptr) {
      recording->push_back(std::move(work));
    } else {
      queue.push_back(std::move(work));
    }
  }
  void run_one() {
    const Work work = std::move(queue.front());
    queue.pop_front();
    try {
      work();
    } catch (...) {
      queue.clear();  // a device that has failed does no more work
      throw;
    }
  }
};

namespace {

/// What a card says of a kernel that failed, to the call that waits for it.
struct CardError {
  const char* text;
};

void wait_for(Stream& stream, const char* call) {
  const emulator::OpenDeviceMemory open;
  try {
    while (!stream.state().queue.empty()) stream.state().run_one();
  } catch (const CardError& error) {
    fail(ExitCode::device, "CUDA: {}: {}", call, error.text);
  }
}

}  // namespace

Stream::Stream(bool waits) : state_(std::make_unique<State>()), waits_(waits) {}
Stream::~Stream() = default;

void Stream::synchronize() {
  if (state_->recording != nullptr) emulator::fault("a stream is waited for while it is recorded");
  wait_for(*this, "cudaStreamSynchronize");
  emulator::check_red_zones();
}

struct Event::State {
  std::uint64_t recorded = 0, happened = 0;
  Stream::State* stream = nullptr;
  std::chrono::steady_clock::time_point time;

  void wait_for(std::uint64_t wanted) {
    const emulator::OpenDeviceMemory open;
    while (happened < wanted && !stream->queue.empty()) stream->run_one();
  }
};

Event::Event() : state_(std::make_unique<State>()) {}
Event::~Event() = default;

void Event::record(Stream& stream) {
  State* const state = state_.get();
  state->stream = &stream.state();
  stream.state().push([state, turn = ++state->recorded] {
    state->happened = turn;
    state->time = std::chrono::steady_clock::now();
  });
}

void Event::hold_back(Stream& stream) const {
  stream.state().push([state = state_.get(), turn = state_->recorded] { state->wait_for(turn); });
}

void Event::synchronize() const { state_->wait_for(state_->recorded); }

float Event::milliseconds_since(const Event& earlier) const {
  if (state_->happened < state_->recorded || earlier.state_->happened < earlier.state_->recorded) {
    emulator::fault("the time between events that have not happened yet");
  }
  return std::chrono::duration<float, std::milli>(state_->time - earlier.state_->time).count();
}

struct Graph::State {
  std::vector<Work> work;
};

Graph::Graph(Stream& stream, const std::function<void()>& work) : state_(std::make_unique<State>()) {
  stream.state().recording = &state_->work;
  work();
  stream.state().recording = nullptr;
}
Graph::~Graph() = default;

void Graph::launch(Stream& stream) const {
  for (const Work& work : state_->work) stream.state().push(work);
}

void copy_to_device(void* to, const void* from, std::size_t bytes, Stream& stream) {
  emulator::check_host_memory(from, "copy to the device: the source");
  emulator::check_device_range(to, bytes, "copy to the device: the destination");
  if (emulator::is_pinned(from)) {
    stream.state().push([=] { std::memcpy(to, from, bytes); });
    return;
  }
  if (stream.state().recording != nullptr) emulator::fault("copy from pageable memory while recording");
  const auto* const first = static_cast<const unsigned char*>(from);
  stream.state().push([to, bytes, copy = std::vector<unsigned char>(first, first + bytes)] {
    std::memcpy(to, copy.data(), bytes);
  });
}

void copy_to_host(void* to, const void* from, std::size_t bytes, Stream& stream) {
  emulator::check_host_memory(to, "copy to the host: the destination");
  emulator::check_device_range(from, bytes, "copy to the host: the source");
  if (!emulator::is_pinned(to) && stream.state().recording != nullptr) {
    emulator::fault("copy to pageable memory while recording");
  }
  stream.state().push([=] { std::memcpy(to, from, bytes); });
}

void copy_on_device(void* to, const void* from, std::size_t bytes, Stream& stream) {
  emulator::check_device_range(to, bytes, "copy on the device: the destination");
  emulator::check_device_range(from, bytes, "copy on the device: the source");
  stream.state().push([=] { std::memmove(to, from, bytes); });
}

void call_library(Stream& stream, const std::function<void(void* native_stream)>& call) {
  stream.state().push([call] { call(nullptr); });
}

void clear(void* to, std::size_t bytes, Stream& stream) {
  emulator::check_device_range(to, bytes, "clear");
  stream.state().push([=] { std::memset(to, 0, bytes); });
}

std::vector<DeviceInfo> devices(std::string& reason) {
  std::vector<DeviceInfo> all;
  for (const auto& card : emulator::stand_in().cards) {
    all.push_back({card.name, card.major, card.minor, static_cast<int>(card.multiprocessors), card.memory});
  }
  if (all.empty()) reason = emulator::stand_in().no_driver;
  return all;
}

}  // namespace FS_GPU_BUILD

namespace emulator {

/// As on cards of compute capability 9.0, but for registers, which nobody counts here.
unsigned resident_blocks(const LaunchShape& shape) {
  constexpr std::size_t threads = 2048, shared_bytes = 228U << 10U, taken_by_a_block = 1U << 10U;
  const std::size_t of_multiprocessor =
      std::min(threads / shape.threads, shared_bytes / (shape.shared_bytes + taken_by_a_block));
  return static_cast<unsigned>(of_multiprocessor) * selected_card().multiprocessors;
}

void enqueue(Stream& stream, Launch launch) {
  const char* const kernel = launch.kernel;
  const unsigned blocks = launch.grid.x * launch.grid.y;
  if (launch.cooperative && blocks > resident_blocks({kernel, 1, 1, launch.block.x, launch.shared_bytes})) {
    fail(ExitCode::device, "CUDA: {}: too many blocks in cooperative launch", kernel);
  }
  stream.state().push([launch = std::move(launch)] {
    if (stand_in().failing_kernel == launch.kernel)
      throw CardError{"an illegal memory access was encountered"};
    run_grid(launch);
  });
  if (stream.waits()) wait_for(stream, kernel);
}

void check_pointer_argument(const void* pointer, std::size_t number, const char* kernel) {
  if (pointer != nullptr && !is_device_memory(pointer)) {
    fault("{}: argument {} points to host memory", kernel, number);
  }
}

}  // namespace emulator
}  // namespace fs::gpu

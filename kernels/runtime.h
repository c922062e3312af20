#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "build.h"
#include "launch_shape.h"

/// The host's side of a device: memory, streams, events and graphs. Implemented twice, over the CUDA runtime
/// and by the emulator. Every function throws Error(device) naming the call that failed.
namespace fs::gpu {
inline namespace FS_GPU_BUILD {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  std::size_t memory = 0;  ///< bytes
};

/// The devices, by the number that select_device() takes; none where the driver is absent (then `reason` says
/// why).
std::vector<DeviceInfo> devices(std::string& reason);
void select_device(int index);
/// Whether the selected device has what linear_tensor() needs: bf16 products and asynchronous copies.
bool tensor_cores();
/// Bytes of the last cache before the selected device's memory.
std::size_t cache_bytes();
/// Bytes that can still be allocated on the selected device.
std::size_t free_memory();

/// Work in order. Nothing of it has happened, as far as the host may know, before synchronize() or an event
/// says so. With `waits`, for finding faults, every launch waits for its kernel, and the error of one names
/// it; nothing can be recorded then.
class Stream {
 public:
  explicit Stream(bool waits = false);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void synchronize();
  bool waits() const { return waits_; }

  /// From now on each launch happens only if `wanted` says so: for those who look at kernels one by one.
  void choose_launches(std::function<bool(const LaunchShape&)> wanted) { wanted_ = std::move(wanted); }
  bool wants(const LaunchShape& shape) const { return !wanted_ || wanted_(shape); }

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
  bool waits_;
  std::function<bool(const LaunchShape&)> wanted_;
};

/// A point in a stream's work.
class Event {
 public:
  Event();
  ~Event();
  void record(Stream& stream);
  /// What `stream` is given after this call waits for the point recorded last.
  void hold_back(Stream& stream) const;
  void synchronize() const;
  /// Milliseconds from `earlier` to this event; both have happened.
  float milliseconds_since(const Event& earlier) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Work recorded once and queued again as a whole. Pointers and sizes are those of the recording.
class Graph {
 public:
  /// Records what `work` gives to `stream`; nothing runs.
  Graph(Stream& stream, const std::function<void()>& work);
  ~Graph();
  void launch(Stream& stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

void* allocate_device(std::size_t bytes);
void free_device(void* memory) noexcept;
/// Host memory that the device copies from and to while the host goes on.
void* allocate_pinned(std::size_t bytes);
void free_pinned(void* memory) noexcept;

void copy_to_device(void* to, const void* from, std::size_t bytes, Stream& stream);
void copy_to_host(void* to, const void* from, std::size_t bytes, Stream& stream);
void copy_on_device(void* to, const void* from, std::size_t bytes, Stream& stream);
void clear(void* to, std::size_t bytes, Stream& stream);  ///< zero bytes

/// Calls a library that gives work to the native stream: at its turn, or at once where a card sees to that.
void call_library(Stream& stream, const std::function<void(void* native_stream)>& call);

/// An array of T in device memory or in pinned host memory.
template <class T, void* (*allocate)(std::size_t), void (*release)(void*) noexcept>
class Array {
 public:
  Array() = default;
  explicit Array(std::size_t size) : data_(static_cast<T*>(allocate(size * sizeof(T)))), size_(size) {}
  Array(Array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Array& operator=(Array&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Array() {
    if (data_ != nullptr) release(data_);
  }
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};
template <class T>
using DeviceArray = Array<T, allocate_device, free_device>;
template <class T>
using PinnedArray = Array<T, allocate_pinned, free_pinned>;

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

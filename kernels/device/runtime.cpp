#include "runtime.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "base/error.h"
#include "device/errors.h"
#include "device/stream.h"

/// The host's side over the CUDA runtime.
namespace fs::gpu {
inline namespace device {

void raise(cudaError_t error, const char* call) {
  const cudaError_t pending = cudaGetLastError();  // so that the next call does not report it again
  static_cast<void>(pending);
  fail(ExitCode::device, "CUDA: {}: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error));
}

namespace {

/// An attribute of the selected device.
int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}
int compute_capability_major() { return attribute(cudaDevAttrComputeCapabilityMajor); }

}  // namespace

bool dependent_launch() {
  static const bool possible = compute_capability_major() >= 9;
  return possible;
}
CooperativeLimits cooperative_limits() {
  if (attribute(cudaDevAttrCooperativeLaunch) == 0) return {};
  return {static_cast<unsigned>(attribute(cudaDevAttrMultiProcessorCount)),
          static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin))};
}
bool tensor_cores() { return compute_capability_major() >= 8; }
std::size_t cache_bytes() { return static_cast<std::size_t>(attribute(cudaDevAttrL2CacheSize)); }

std::vector<DeviceInfo> devices(std::string& reason) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    reason = error == cudaErrorInsufficientDriver
                 ? fmt::format("no NVIDIA driver, or one older than CUDA {}.{} needs", CUDART_VERSION / 1000,
                               CUDART_VERSION % 1000 / 10)
                 : cudaGetErrorString(error);
    return {};
  }
  if (count == 0) reason = "the driver knows none";
  std::vector<DeviceInfo> all;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, i), "cudaGetDeviceProperties");
    all.push_back({properties.name, properties.major, properties.minor, properties.multiProcessorCount,
                   properties.totalGlobalMem});
  }
  return all;
}

void select_device(int index) { check(cudaSetDevice(index), "cudaSetDevice"); }

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

Stream::Stream(bool waits) : state_(std::make_unique<State>()), waits_(waits) {
  check(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
Stream::~Stream() { static_cast<void>(cudaStreamDestroy(state_->stream)); }
void Stream::synchronize() { check(cudaStreamSynchronize(state_->stream), "cudaStreamSynchronize"); }

struct Event::State {
  cudaEvent_t event = nullptr;
};
Event::Event() : state_(std::make_unique<State>()) {
  check(cudaEventCreate(&state_->event), "cudaEventCreate");
}
Event::~Event() { static_cast<void>(cudaEventDestroy(state_->event)); }
void Event::record(Stream& stream) {
  check(cudaEventRecord(state_->event, stream.state().stream), "cudaEventRecord");
}
void Event::hold_back(Stream& stream) const {
  check(cudaStreamWaitEvent(stream.state().stream, state_->event, 0), "cudaStreamWaitEvent");
}
void Event::synchronize() const { check(cudaEventSynchronize(state_->event), "cudaEventSynchronize"); }
float Event::milliseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, earlier.state_->event, state_->event), "cudaEventElapsedTime");
  return milliseconds;
}

struct Graph::State {
  cudaGraphExec_t executable = nullptr;
};
Graph::Graph(Stream& stream, const std::function<void()>& work) : state_(std::make_unique<State>()) {
  cudaStream_t const on = stream.state().stream;
  check(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(on, &graph));
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    throw;
  }
  check(cudaStreamEndCapture(on, &graph), "cudaStreamEndCapture");
  const cudaError_t made = cudaGraphInstantiate(&state_->executable, graph, 0);
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  check(made, "cudaGraphInstantiate");
}
Graph::~Graph() { static_cast<void>(cudaGraphExecDestroy(state_->executable)); }
void Graph::launch(Stream& stream) const {
  check(cudaGraphLaunch(state_->executable, stream.state().stream), "cudaGraphLaunch");
}

void call_library(Stream& stream, const std::function<void(void* native_stream)>& call) {
  call(stream.state().stream);
}

void* allocate_device(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}
void free_device(void* memory) noexcept { static_cast<void>(cudaFree(memory)); }
void* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
  return memory;
}
void free_pinned(void* memory) noexcept { static_cast<void>(cudaFreeHost(memory)); }

void copy_to_device(void* to, const void* from, std::size_t bytes, Stream& stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream.state().stream), "cudaMemcpyAsync");
}
void copy_to_host(void* to, const void* from, std::size_t bytes, Stream& stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream.state().stream), "cudaMemcpyAsync");
}
void copy_on_device(void* to, const void* from, std::size_t bytes, Stream& stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.state().stream), "cudaMemcpyAsync");
}
void clear(void* to, std::size_t bytes, Stream& stream) {
  check(cudaMemsetAsync(to, 0, bytes, stream.state().stream), "cudaMemsetAsync");
}

}  // namespace device
}  // namespace fs::gpu

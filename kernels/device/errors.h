#pragma once
#include <cuda_runtime.h>

#include <cstddef>

namespace fs::gpu {
inline namespace device {

/// Throws Error(device) naming the call and CUDA's message.
[[noreturn]] void raise(cudaError_t error, const char* call);

inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) raise(error, call);
}

/// Whether kernels may start before the one before has ended: from compute capability 9.0 on.
bool dependent_launch();

/// What a cooperative launch may use of the selected device.
struct CooperativeLimits {
  unsigned multiprocessors = 0;  ///< 0: the device has no such launch
  std::size_t shared_bytes = 0;  ///< of a block
};
CooperativeLimits cooperative_limits();

}  // namespace device
}  // namespace fs::gpu

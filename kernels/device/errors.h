#pragma once
#include <cuda_runtime.h>

namespace fs::gpu {
inline namespace device {

/// Throws Error(device) naming the call and CUDA's message.
[[noreturn]] void raise(cudaError_t error, const char* call);

inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) raise(error, call);
}

/// Whether kernels may start before the one before has ended: from compute capability 9.0 on.
bool dependent_launch();

}  // namespace device
}  // namespace fs::gpu

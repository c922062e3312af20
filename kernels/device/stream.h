#pragma once
#include <cuda_runtime.h>

#include "runtime.h"

namespace fs::gpu {
inline namespace device {

struct Stream::State {
  cudaStream_t stream = nullptr;
};

}  // namespace device
}  // namespace fs::gpu

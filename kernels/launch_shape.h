#pragma once
#include <cstddef>

namespace fs::gpu {

/// What a kernel must read from the device's memory at the least: weights, and keys and values of every
/// position it sees, which the host may not know. The rest, activations, is small and lies in caches.
struct Reads {
  std::size_t bytes = 0;
  std::size_t position_bytes = 0;  ///< of each position
};

/// How a kernel is launched.
struct LaunchShape {
  const char* kernel = "";  ///< its name, for messages and profiles
  unsigned blocks_x = 1, blocks_y = 1;
  unsigned threads = 1;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory
  Reads reads = {};              ///< of kernels of a decode step
  bool cooperative = false;      ///< all blocks run at once and may meet in sync_grid()
};

}  // namespace fs::gpu

#pragma once
#include <cstddef>

namespace fs::gpu {

/// How a kernel is launched.
struct LaunchShape {
  const char* kernel = "";  ///< its name, for messages and profiles
  unsigned blocks_x = 1, blocks_y = 1;
  unsigned threads = 1;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory
  bool cooperative = false;      ///< all blocks run at once and may meet in sync_grid()
};

}  // namespace fs::gpu

#pragma once
#include "gpu.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// Where all blocks of a cooperative launch meet. It counts arrivals, which only grow: nothing is reset while
/// blocks still look at it. Counts wrap round; what is compared is their distance.
/// counts: [2], cleared once: arrivals so far (touched only atomically), and those before this launch; due:
/// in shared memory, of the first thread
class GridBarrier {
 public:
  FS_DEVICE GridBarrier(unsigned* counts, unsigned* due) : counts_(counts), due_(due) {
    if (thread_index() == 0) *due_ = counts_[1];
  }

  /// What any block has written before, every block reads after. By all threads of the block.
  FS_DEVICE void wait() {
    sync_threads();
    if (thread_index() == 0) {
      const unsigned due = *due_ += static_cast<unsigned>(grid_x());
      fence_device();
      atomic_add(counts_, 1U);
      while (static_cast<int>(atomic_load(counts_) - due) < 0) spin_pause();
      fence_device();
    }
    sync_threads();
  }
  /// After the last wait(), for the next launch.
  FS_DEVICE void leave() const {
    if (block_x() == 0 && thread_index() == 0) counts_[1] = *due_;
  }

 private:
  unsigned* counts_;
  unsigned* due_;
};

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

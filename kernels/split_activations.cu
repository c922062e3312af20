#include "gpu.h"
#include "kernels.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int split_threads = 256;

/// Grid: [columns / threads, rows].
FS_KERNEL(split_threads)
split_activations_kernel(const float* x, int cols, int pitch, int parts, Bf16* split) {
  wait_for_previous_kernel();
  const int col = block_x() * split_threads + thread_index();
  if (col >= pitch) return;
  const auto row = static_cast<std::size_t>(block_y()), rows = static_cast<std::size_t>(grid_y());
  const auto width = static_cast<std::size_t>(pitch), at = row * width + static_cast<std::size_t>(col);
  float rest = col < cols ? x[row * static_cast<std::size_t>(cols) + static_cast<std::size_t>(col)] : 0.0F;
  for (int part = 0; part < parts; ++part) {
    Bf16 nearest;
    store_as(&nearest, rest);
    split[static_cast<std::size_t>(part) * rows * width + at] = nearest;
    rest -= to_float(nearest);
  }
}

}  // namespace

void split_activations(Stream& stream, const float* x, int rows, int cols, const SplitRows& to) {
  launch(stream,
         {"split_activations", static_cast<unsigned>((to.pitch + split_threads - 1) / split_threads),
          static_cast<unsigned>(rows), split_threads},
         split_activations_kernel, x, cols, to.pitch, to.parts, to.data);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

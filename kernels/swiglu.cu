#include "swiglu.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

template <class Weights>
FS_KERNEL(gemv_threads)
swiglu_kernel(const unsigned char* gate, const F16* gate_scales, const unsigned char* up,
              const F16* up_scales, int rows, int cols, int chunks, const float* x, const float* norm,
              float eps, float* act) {
  FS_DYNAMIC_SHARED(float, staged);
  swiglu_rows<Weights>(AsKernel{}, {gate, gate_scales, rows, chunks}, {up, up_scales, rows, chunks}, cols, x,
                       norm, eps, act, staged);
}

constexpr int pair_threads = 256;

FS_KERNEL(pair_threads)
swiglu_pairs_kernel(const float* gate, const float* up, std::size_t count, float* act) {
  wait_for_previous_kernel();
  const auto step = static_cast<std::size_t>(grid_x()) * pair_threads;
  for (std::size_t i =
           static_cast<std::size_t>(block_x()) * pair_threads + static_cast<std::size_t>(thread_index());
       i < count; i += step) {
    act[i] = silu(gate[i]) * up[i];
  }
}

}  // namespace

void swiglu(Stream& stream, const DeviceMatrix& gate, const DeviceMatrix& up, const float* x,
            const float* norm, float eps, float* act) {
  with_format(gate.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"swiglu",
            gemv_blocks(gate.rows, swiglu_rows_each<Weights, AsKernel>),
            1,
            gemv_threads,
            staged_bytes<Weights>(gate.chunks),
            {stored_bytes(gate) + stored_bytes(up)}},
           swiglu_kernel<Weights>, gate.data, gate.scales, up.data, up.scales, gate.rows, gate.cols,
           gate.chunks, x, norm, eps, act);
  });
}

void swiglu_pairs(Stream& stream, const float* gate, const float* up, std::size_t count, float* act) {
  const std::size_t blocks = (count + pair_threads - 1) / pair_threads;
  launch(stream, {"swiglu_pairs", static_cast<unsigned>(blocks < 1024 ? blocks : 1024), 1, pair_threads},
         swiglu_pairs_kernel, gate, up, count, act);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#include "attn_out.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

template <class Weights>
FS_KERNEL(gemv_threads)
attn_out_kernel(const unsigned char* o_proj, const F16* scales, int rows, int cols, int chunks, int n_q_heads,
                int head_dim, float* peak, float* mass, float* partial, const int* position,
                const float* mixed, float* x) {
  FS_DYNAMIC_SHARED(float, staged);
  attn_out_rows<Weights>(AsKernel{}, {o_proj, scales, rows, chunks}, cols, n_q_heads, head_dim,
                         {peak, mass, partial}, position, mixed, x, staged);
}

}  // namespace

void attn_out(Stream& stream, const AttentionShape& shape, const DeviceMatrix& o_proj,
              const Partials& partials, const int* position, const float* mixed, float* x) {
  with_format(o_proj.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"attn_out",
            gemv_blocks(o_proj.rows),
            1,
            gemv_threads,
            staged_bytes<Weights>(o_proj.chunks),
            {stored_bytes(o_proj)}},
           attn_out_kernel<Weights>, o_proj.data, o_proj.scales, o_proj.rows, o_proj.cols, o_proj.chunks,
           shape.n_q_heads, shape.head_dim, partials.peak, partials.mass, partials.mixed, position, mixed, x);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#include "gpu.h"
#include "weight_formats.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int tile = 64, depth = 32, linear_threads = 256;
constexpr int stride = tile + 4;  // of a row of the tiles: whole vectors, and fewer bank conflicts

/// A block makes 64 rows of x times 64 rows of W, a thread 4 × 4 of them, in fp32 from tiles in shared
/// memory.
template <class Weights>
FS_KERNEL(linear_threads)
linear_kernel(const unsigned char* w, const F16* scales, int w_rows, int cols, int chunks, const float* x,
              int rows, bool add, float* out) {
  FS_SHARED(F32x4, x_vectors, [depth * stride / 4]);  // vectors: aligned
  FS_SHARED(F32x4, w_vectors, [depth * stride / 4]);
  float* const x_tile = &x_vectors[0].x;  // [depth, stride]
  float* const w_tile = &w_vectors[0].x;  // [depth, stride]
  wait_for_previous_kernel();
  const int first_w = block_x() * tile, first_x = block_y() * tile;
  const int across = thread_index() % 16 * 4, down = thread_index() / 16 * 4;
  float sum[4][4] = {};
  for (int k = 0; k < cols; k += depth) {
    for (int i = thread_index(); i < tile * depth; i += linear_threads) {
      const int row = first_x + i / depth, col = k + i % depth;
      const bool inside = row < rows && col < cols;
      x_tile[i % depth * stride + i / depth] =
          inside ? x[static_cast<std::size_t>(row) * static_cast<std::size_t>(cols) +
                     static_cast<std::size_t>(col)]
                 : 0.0F;
    }
    constexpr int row_chunks = depth / Weights::per_chunk;
    for (int i = thread_index(); i < tile * row_chunks; i += linear_threads) {
      const int row = first_w + i / row_chunks, chunk = k / Weights::per_chunk + i % row_chunks;
      float values[Weights::per_chunk] = {};
      if (row < w_rows && chunk < chunks) {
        const std::size_t at = static_cast<std::size_t>(row) * static_cast<std::size_t>(chunks);
        const U32x4 held = load_streaming(w + (at + static_cast<std::size_t>(chunk)) * 16);
        const float scale = scale_at<Weights>(scales, row, chunk, chunks);
        FS_UNROLL
        for (int part = 0; part < Weights::per_chunk / 4; ++part) {
          float four[4];
          Weights::decode(held, part, four);
          FS_UNROLL
          for (int j = 0; j < 4; ++j) values[4 * part + j] = four[j] * scale;
        }
      }
      FS_UNROLL
      for (int j = 0; j < Weights::per_chunk; ++j) {
        w_tile[(i % row_chunks * Weights::per_chunk + j) * stride + i / row_chunks] = values[j];
      }
    }
    sync_threads();
    FS_UNROLL
    for (int d = 0; d < depth; ++d) {
      const F32x4 a = load4(x_tile + d * stride + down), b = load4(w_tile + d * stride + across);
      const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
      FS_UNROLL
      for (int i = 0; i < 4; ++i) {
        FS_UNROLL
        for (int j = 0; j < 4; ++j) sum[i][j] = fma(as[i], bs[j], sum[i][j]);
      }
    }
    sync_threads();
  }
  FS_UNROLL
  for (int i = 0; i < 4; ++i) {
    FS_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int row = first_x + down + i, col = first_w + across + j;
      if (row >= rows || col >= w_rows) continue;
      float* const to = out + static_cast<std::size_t>(row) * static_cast<std::size_t>(w_rows) + col;
      *to = add ? *to + sum[i][j] : sum[i][j];
    }
  }
}

}  // namespace

void linear(Stream& stream, const DeviceMatrix& w, const float* x, int rows, bool add, float* out) {
  with_format(w.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"linear", static_cast<unsigned>((w.rows + tile - 1) / tile),
            static_cast<unsigned>((rows + tile - 1) / tile), linear_threads},
           linear_kernel<Weights>, w.data, w.scales, w.rows, w.cols, w.chunks, x, rows, add, out);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

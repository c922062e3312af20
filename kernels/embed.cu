#include "gpu.h"
#include "weight_formats.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int embed_threads = 128;

/// One block a row; a lane decodes whole chunks.
template <class Weights>
FS_KERNEL(embed_threads)
embed_kernel(const unsigned char* table, const F16* scales, int hidden, int chunks, const int* tokens,
             float* x) {
  wait_for_previous_kernel();
  const int row = tokens[block_x()];
  const unsigned char* const from =
      table + static_cast<std::size_t>(row) * static_cast<std::size_t>(chunks) * 16;
  float* const out = x + static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(hidden);
  for (int chunk = thread_index(); chunk < chunks; chunk += embed_threads) {
    const U32x4 held = load_streaming(from + static_cast<std::size_t>(chunk) * 16);
    const float scale = scale_at<Weights>(scales, row, chunk, chunks);
    FS_UNROLL
    for (int part = 0; part < Weights::per_chunk / 4; ++part) {
      float w[4];
      Weights::decode(held, part, w);
      FS_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at = chunk * Weights::per_chunk + 4 * part + i;
        if (at < hidden) out[at] = w[i] * scale;
      }
    }
  }
}

}  // namespace

void embed(Stream& stream, const DeviceMatrix& table, const int* tokens, int rows, float* x) {
  with_format(table.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream,
           {"embed",
            static_cast<unsigned>(rows),
            1,
            embed_threads,
            0,
            {static_cast<std::size_t>(rows) * row_bytes(table)}},
           embed_kernel<Weights>, table.data, table.scales, table.cols, table.chunks, tokens, x);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

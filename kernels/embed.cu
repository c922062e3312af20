#include "gpu.h"
#include "weight_formats.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int embed_threads = 128;

/// One block a row; a lane decodes whole chunks.
template <class Weights>
FS_KERNEL(embed_threads)
embed_kernel(const unsigned char* table, int hidden, int chunks, const int* tokens, float* x) {
  wait_for_previous_kernel();
  const std::size_t row = static_cast<std::size_t>(tokens[block_x()]) * static_cast<std::size_t>(chunks);
  float* const out = x + static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(hidden);
  for (int chunk = thread_index(); chunk < chunks; chunk += embed_threads) {
    float w[Weights::per_chunk];
    Weights::decode(load_streaming(table + (row + static_cast<std::size_t>(chunk)) * 16), w);
    FS_UNROLL
    for (int i = 0; i < Weights::per_chunk; ++i) {
      const int at = chunk * Weights::per_chunk + i;
      if (at < hidden) out[at] = w[i];
    }
  }
}

}  // namespace

void embed(Stream& stream, const DeviceMatrix& table, const int* tokens, int rows, float* x) {
  with_format(table.format, [&](auto weights) {
    using Weights = decltype(weights);
    launch(stream, {"embed", static_cast<unsigned>(rows), 1, embed_threads}, embed_kernel<Weights>,
           table.data, table.cols, table.chunks, tokens, x);
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

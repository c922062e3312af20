#pragma once
#include <cstddef>
#include <string>

#include "cuda/device_weights.h"
#include "kernels.h"

namespace fs::cuda::FS_GPU_BUILD {

/// How the layers of a decode step run in one cooperative kernel, gpu::decode_layers(), if they can.
struct PersistentLayers {
  unsigned blocks = 0;            ///< 0: they run kernel by kernel
  std::size_t weights_apart = 0;  ///< bytes from one layer's weights to the next layer's
  std::string because;            ///< why not
};
PersistentLayers persistent_layers(const DeviceWeights& weights, const gpu::AttentionShape& attention,
                                   gpu::KvFormat kv);
/// In a line, for the user who asked for it.
std::string text(const PersistentLayers& layers);

}  // namespace fs::cuda::FS_GPU_BUILD

#include "cuda/persistent_layers.h"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace fs::cuda::FS_GPU_BUILD {
namespace {

using gpu::DeviceLayer;

std::array<const gpu::DeviceMatrix*, 5> matrices(const DeviceLayer& l) {
  return {&l.qkv, &l.o_proj, &l.gate_proj, &l.up_proj, &l.down_proj};
}

const unsigned char* address(const void* data) { return static_cast<const unsigned char*>(data); }

/// Where a layer's parts lie, from its first norm on.
std::vector<std::ptrdiff_t> places(const DeviceLayer& l) {
  std::vector<std::ptrdiff_t> all;
  for (const float* norm : {l.q_norm, l.k_norm, l.post_attention_norm}) {
    all.push_back(address(norm) - address(l.input_norm));
  }
  for (const gpu::DeviceMatrix* m : matrices(l)) {
    all.push_back(address(m->data) - address(l.input_norm));
    if (m->scales != nullptr) all.push_back(address(m->scales) - address(l.input_norm));
  }
  return all;
}

}  // namespace

PersistentLayers persistent_layers(const DeviceWeights& weights, const gpu::AttentionShape& attention,
                                   gpu::KvFormat kv) {
  const std::vector<DeviceLayer>& layers = weights.layers;
  const DeviceLayer& first = layers.front();
  if (attention.head_dim > gpu::persistent_most_dim) {
    return {0, 0,
            fmt::format("heads have {} values, it takes {}", attention.head_dim, gpu::persistent_most_dim)};
  }
  const std::ptrdiff_t apart =
      layers.size() > 1 ? address(layers[1].input_norm) - address(first.input_norm) : 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (const gpu::DeviceMatrix* m : matrices(layers[i])) {
      if (m->format != first.qkv.format) return {0, 0, "weights are of several formats"};
    }
    if (places(layers[i]) != places(first) ||
        address(layers[i].input_norm) - address(first.input_norm) != static_cast<std::ptrdiff_t>(i) * apart) {
      return {0, 0, "layers differ in size"};
    }
  }
  gpu::DecodeLayers shape;
  shape.shape = attention;
  shape.weights = first;
  shape.cache.format = kv;
  const unsigned blocks = gpu::decode_layers_blocks(shape);
  if (blocks == 0) return {0, 0, "the device cannot keep its blocks running at once"};
  return {blocks, static_cast<std::size_t>(apart), ""};
}

std::string text(const PersistentLayers& layers) {
  if (layers.blocks == 0) {
    return fmt::format("--step persistent: {}; decode steps run as a graph of kernels", layers.because);
  }
  return fmt::format("a decode step's layers run in one kernel of {} blocks", layers.blocks);
}

}  // namespace fs::cuda::FS_GPU_BUILD

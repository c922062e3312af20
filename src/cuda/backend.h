#pragma once
#include <memory>

#include "engine/backend.h"

/// The CUDA backend: fp32 activations and sums, weights in the format stored; a decode step is a graph. One
/// source, compiled for the card (device) and for the emulator (emulated).
namespace fs::cuda {

struct Options {
  int device = 0;                       ///< its number
  model::Dtype kv = model::Dtype::f32;  ///< of keys and values in the cache: f32, f16, bf16
};

namespace device {
/// On options.device. Throws Error(device) if it is not there or its memory does not hold the model,
/// Error(unusable) for a shape that the kernels cannot take.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              const Options& options);
}  // namespace device

namespace emulated {
/// On the CPU, every CUDA thread a fiber: slow, and strict about every rule of CUDA.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              const Options& options);
}  // namespace emulated

}  // namespace fs::cuda

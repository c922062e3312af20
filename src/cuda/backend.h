#pragma once
#include <memory>

#include "engine/backend.h"

/// The CUDA backend: fp32 activations, sums and cache, weights in the format stored; a decode step is a
/// graph. One source, compiled for the card (device) and for the emulator (emulated).
namespace fs::cuda {

namespace device {
/// On device `index`. Throws Error(device) if it is not there or its memory does not hold the model,
/// Error(unusable) for a shape that the kernels cannot take.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights, int index);
}  // namespace device

namespace emulated {
/// On the CPU, every CUDA thread a fiber: slow, and strict about every rule of CUDA.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights, int index);
}  // namespace emulated

}  // namespace fs::cuda

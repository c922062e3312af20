#pragma once
#include <memory>

#include "build.h"
#include "engine/backend.h"

namespace fs::cuda {
inline namespace FS_GPU_BUILD {

/// The CUDA backend on device `index`: fp32 activations, sums and cache, weights in the format stored; a
/// decode step is a graph. Throws Error(device) if the device is not there or its memory does not hold the
/// model, Error(unusable) for a shape that the kernels cannot take.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights, int index);

}  // namespace FS_GPU_BUILD
}  // namespace fs::cuda

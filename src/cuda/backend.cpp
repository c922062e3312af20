#include "cuda/backend.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "cuda/cuda.h"

namespace fs::cuda::FS_GPU_BUILD {
namespace {

constexpr std::size_t most_head_dim = 256;
constexpr int least_capability = 75;  // times ten: Turing

}  // namespace

std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              const Options& options) {
  std::string reason;
  const std::vector<gpu::DeviceInfo> found = gpu::devices(reason);
  if (found.empty()) fail(ExitCode::device, "no CUDA device: {}", reason);
  const int index = options.device;
  if (index < 0 || static_cast<std::size_t>(index) >= found.size()) {
    fail(ExitCode::device, "CUDA device {}: there are {}, numbered from 0", index, found.size());
  }
  if (config.head_dim > most_head_dim) {
    fail(ExitCode::unusable, "head_dim {}: the CUDA backend takes up to {}; use --backend cpu",
         config.head_dim, most_head_dim);
  }
  const gpu::DeviceInfo& device = found[static_cast<std::size_t>(index)];
  if (10 * device.major + device.minor < least_capability) {
    fail(ExitCode::device, "{}: compute capability {}.{}, the CUDA backend needs {}.{}; use --backend cpu",
         device.name, device.major, device.minor, least_capability / 10, least_capability % 10);
  }
  gpu::select_device(index);
  const std::size_t needed = DeviceWeights::bytes(weights), free = gpu::free_memory();
  if (needed > free) {
    fail(ExitCode::device, "{}: {} MiB free, the weights need {} MiB; use --backend cpu", device.name,
         free >> 20U, needed >> 20U);
  }
  return std::make_unique<Cuda>(config, weights, options);
}

}  // namespace fs::cuda::FS_GPU_BUILD

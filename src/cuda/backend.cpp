#include "cuda/backend.h"

#include <fmt/format.h>

#include <string>

#include "base/error.h"
#include "cuda/cuda.h"
#include "cuda/memory_plan.h"

namespace fs::cuda::FS_GPU_BUILD {
namespace {

constexpr std::size_t most_head_dim = 256;
constexpr int least_capability = 75;  // times ten: Turing

}  // namespace

engine::Devices devices() {
  engine::Devices found;
  for (const gpu::DeviceInfo& card : gpu::devices(found.none_because)) {
    std::string because;
    if (10 * card.major + card.minor < least_capability) {
      because = fmt::format("compute capability {}.{}, the CUDA backend needs {}.{}", card.major, card.minor,
                            least_capability / 10, least_capability % 10);
    }
    found.all.push_back({card.name, card.major, card.minor, card.memory, because});
  }
  return found;
}

engine::Device usable_device(const model::Config& config, const Options& options) {
  const engine::Devices found = devices();
  if (found.all.empty()) fail(ExitCode::device, "no CUDA device: {}", found.none_because);
  if (options.device >= found.all.size()) {
    fail(ExitCode::device, "--device {}: there {} (fs devices lists them)", options.device,
         found.all.size() == 1 ? fmt::format("is only 0, {}", found.all.front().name)
                               : fmt::format("are 0 to {}", found.all.size() - 1));
  }
  const engine::Device& device = found.all[options.device];
  if (!device.unusable_because.empty()) {
    fail(ExitCode::device, "{}: {}; use --backend cpu", device.name, device.unusable_because);
  }
  if (config.head_dim > most_head_dim) {
    fail(ExitCode::unusable, "head_dim {}: the CUDA backend takes up to {}; use --backend cpu",
         config.head_dim, most_head_dim);
  }
  return device;
}

std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              const Options& options) {
  const engine::Device device = usable_device(config, options);
  gpu::select_device(static_cast<int>(options.device));
  const MemoryPlan plan = memory_plan(config, weights, options);
  check(plan, options.context, device.name);
  if (options.notice) {
    options.notice(
        fmt::format("{} (device {}): {}", device.name, options.device, text(plan, options.context)));
  }
  auto backend = std::make_unique<Cuda>(config, weights, options);
  if (options.notice && options.persistent) options.notice(text(backend->persistent()));
  return backend;
}

}  // namespace fs::cuda::FS_GPU_BUILD

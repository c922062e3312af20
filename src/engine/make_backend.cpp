#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/backend.h"
#include "cuda/backend.h"
#include "engine/backend.h"
#include "reference/backend.h"

namespace fs::engine {

std::unique_ptr<Backend> make_backend(const BackendOptions& options, const model::Config& config,
                                      model::Weights weights) {
  const std::size_t threads = options.threads == 0 ? available_processors() : options.threads;
  bool on_cpu = options.name == "cpu";
  if (options.name == "auto") {
    on_cpu = true;
#if FS_HAS_CUDA
    try {
      return cuda::device::make_backend(config, weights, 0);
    } catch (const Error& error) {
      if (options.notice) options.notice(std::string(error.what()) + "; the CPU computes instead");
    }
#endif
  }
  if (on_cpu) return cpu::make_backend(config, std::move(weights), threads, options.isa);
  if (options.name == "reference") return reference::make_backend(config, std::move(weights), threads);
  if (options.name == "cuda") {
#if FS_HAS_CUDA
    return cuda::device::make_backend(config, std::move(weights), 0);
#else
    fail(ExitCode::device,
         "--backend cuda: this build has none; configure it with FS_CUDA=ON, or use --backend cpu");
#endif
  }
  if (options.name == "cuda-emulated") {
#if FS_HAS_CUDA_EMULATED
    return cuda::emulated::make_backend(config, std::move(weights), 0);
#else
    fail(ExitCode::device,
         "--backend cuda-emulated: this build has none; configure it with FS_CUDA_EMULATED=ON");
#endif
  }
  fail(ExitCode::usage, "--backend {}: unknown; there are auto, cuda, cpu, reference and cuda-emulated",
       options.name);
}

}  // namespace fs::engine

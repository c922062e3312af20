#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/backend.h"
#include "engine/backend.h"
#include "reference/backend.h"

namespace fs::engine {

std::unique_ptr<Backend> make_backend(const BackendOptions& options, const model::Config& config,
                                      model::Weights weights) {
  const std::size_t threads = options.threads == 0 ? available_processors() : options.threads;
  if (options.name == "auto" || options.name == "cpu") {
    return cpu::make_backend(config, std::move(weights), threads, options.isa);
  }
  if (options.name == "reference") return reference::make_backend(config, std::move(weights), threads);
  fail(ExitCode::usage, "--backend {}: unknown; this build has: auto, cpu, reference", options.name);
}

}  // namespace fs::engine

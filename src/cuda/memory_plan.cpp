#include "cuda/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cuda/blas.h"
#include "cuda/device_weights.h"
#include "cuda/kv_cache.h"
#include "cuda/scratch.h"

namespace fs::cuda::FS_GPU_BUILD {

MemoryPlan memory_plan(const model::Config& config, const model::Weights& weights, const Options& options) {
  constexpr std::size_t for_cublas = std::size_t{128} << 20U;  // its kernels and workspace, as it likes
  const std::size_t chunk = options.prefill_chunk;
  MemoryPlan plan;
  plan.weights = DeviceWeights::bytes(weights);
  plan.scratch = DecodeState::bytes(config) + Scratch::bytes(config, 1) + Scratch::bytes(config, chunk) +
                 std::min(chunk, logit_rows) * config.vocab_size * sizeof(float);
  if (options.fast && !options.cublas.value_or(cublas_names()).empty()) plan.scratch += for_cublas;
  plan.position = KvCache::bytes(config, kv_format_of(options.kv), 1);
  plan.free = gpu::free_memory();
  return plan;
}

std::string text(const MemoryPlan& plan, std::size_t context) {
  std::string keys =
      fmt::format("keys and values {:.1f} KiB a token", static_cast<double>(plan.position) / 1024);
  if (context > 0) keys += fmt::format(" ({} MiB at --ctx {})", mebibytes(plan.position * context), context);
  return fmt::format("weights {} MiB, {}, scratch {} MiB; {} MiB are free", mebibytes(plan.weights), keys,
                     mebibytes(plan.scratch), mebibytes(plan.free));
}

void check(const MemoryPlan& plan, std::size_t context, const std::string& device) {
  if (plan.weights + plan.scratch + plan.position > plan.free) {
    fail(ExitCode::device, "{}: {}: take --backend cpu, or smaller weights (--dtype q8_0)", device,
         text(plan, context));
  }
  if (context > plan.positions()) {
    fail(ExitCode::device, "{}: {}: --ctx {} fits", device, text(plan, context), plan.positions());
  }
}

}  // namespace fs::cuda::FS_GPU_BUILD

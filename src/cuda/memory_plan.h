#pragma once
#include <cstddef>
#include <string>

#include "build.h"
#include "cuda/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace fs::cuda::FS_GPU_BUILD {

/// Bytes of device memory that a model takes, known before any of it is allocated.
struct MemoryPlan {
  std::size_t weights = 0;
  std::size_t scratch = 0;   ///< of a decode step, of a chunk of a prompt and its logits, and of cuBLAS
  std::size_t position = 0;  ///< keys, values and rotary angles of one position
  std::size_t free = 0;

  /// Positions that fit beside weights and scratch.
  std::size_t positions() const {
    return weights + scratch > free ? 0 : (free - weights - scratch) / position;
  }
};

MemoryPlan memory_plan(const model::Config& config, const model::Weights& weights, const Options& options);
/// In a line: "weights 1137 MiB, …".  `context`: what --ctx says, 0 without it.
std::string text(const MemoryPlan& plan, std::size_t context);
/// Throws Error(device) saying what would fit, if the plan, with all positions of `context`, does not.
void check(const MemoryPlan& plan, std::size_t context, const std::string& device);

/// Whole MiB, rounded up.
inline std::size_t mebibytes(std::size_t bytes) { return (bytes + (1U << 20U) - 1) >> 20U; }

}  // namespace fs::cuda::FS_GPU_BUILD

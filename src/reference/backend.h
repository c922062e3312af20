#pragma once
#include <memory>
#include <optional>

#include "base/thread_pool.h"
#include "engine/backend.h"

namespace fs::reference {

/// The backend that defines right: plain fp32 values, sums in double, never optimised. `threads` ≥ 1;
/// `prefill_chunk`: tokens of a forward call at most.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              std::size_t threads,
                                              std::optional<std::size_t> prefill_chunk = std::nullopt);

}  // namespace fs::reference

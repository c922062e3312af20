#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "engine/backend.h"

namespace fs::cpu {

/// The fast CPU backend: fp32 activations and sums, weights read in the format stored, kernels chosen by
/// `isa` (choose_kernels). `threads` ≥ 1. Results are bit-identical for any number of threads. Throws
/// Error(usage) for an `isa` that is not available.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              std::size_t threads, std::string_view isa);

}  // namespace fs::cpu

#pragma once
#include <memory>
#include <span>

#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "model/config.h"
#include "model/weights.h"

namespace fs::cpu {

/// The kernels for weights of a Dtype.
const WeightKernels& kernels_of(const Kernels& kernels, model::Dtype dtype);

/// Brings a matrix into panels if `kernels` multiply its Dtype so: `arranged` points to them, `data` is null.
/// Returns the memory that holds them, else nothing. Throws Error(failed) if there is not enough.
std::shared_ptr<const std::byte> arrange(Pool& pool, const Kernels& kernels, model::Matrix& matrix);

/// Does so for all matrices, and lets go of the storage that none of them needs any more.
void arrange(Pool& pool, const Kernels& kernels, const model::Config& config, model::Weights& weights);

/// Decodes a row of a matrix, arranged or as stored. out: [cols]
void decode_row(const Kernels& kernels, const model::Matrix& matrix, std::size_t row, std::span<float> out);

}  // namespace fs::cpu

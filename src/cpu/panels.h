#pragma once
#include <cstddef>
#include <span>

#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "model/config.h"
#include "model/weights.h"

namespace fs::cpu {

/// The kernels for weights of a Dtype.
const WeightKernels& kernels_of(const Kernels& kernels, model::Dtype dtype);

/// Bytes of a matrix in panels; 0 if `kernels` multiply its Dtype as it is stored.
std::size_t arranged_bytes(const Kernels& kernels, const model::Matrix& matrix);
/// Brings such a matrix into panels at `to`: `arranged` points to them, `data` is null.
void arrange(Pool& pool, const Kernels& kernels, model::Matrix& matrix, std::byte* to);

/// Does so for all matrices of a model, in one stretch of memory, and lets go of the storage if none of them
/// needs it any more. Throws Error(failed) if there is not enough memory.
void arrange(Pool& pool, const Kernels& kernels, const model::Config& config, model::Weights& weights);

/// Decodes a row of a matrix, arranged or as stored. out: [cols]
void decode_row(const Kernels& kernels, const model::Matrix& matrix, std::size_t row, std::span<float> out);

}  // namespace fs::cpu

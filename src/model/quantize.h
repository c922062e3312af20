#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "base/thread_pool.h"
#include "base/types.h"
#include "model/config.h"
#include "model/dtype.h"
#include "model/weights.h"

namespace fs::model {

/// Encodes a row at `out`, row_bytes(dtype, row.size()) bytes, each element to the nearest value of the
/// format:
///   f16, bf16   ties to even
///   q8_0        d = fp16(largest magnitude / 127), q = x · 127 / largest magnitude, ties away from zero: bit
///   for
///               bit GGUF's
///   int4        d = fp16(−x of largest magnitude / r), for the r in 7..11 (by thirds) of the least squared
///   error
/// False, with `out` in no defined state, if a value is not finite (f32 takes any) or beyond the format's
/// range.
bool encode(Dtype dtype, std::span<const float> row, std::byte* out);

/// Encodes rows [first, first + n) of a matrix at `to`, n · row_bytes(dtype, from.cols) bytes, by all
/// threads. Throws Error(unusable) naming tensor `name` and the row with a value that the format cannot hold.
void encode_rows(const std::string& name, const Matrix& from, std::size_t first, std::size_t n, Dtype dtype,
                 std::byte* to, ThreadPool& pool);

/// The weights with every matrix in `dtype`, in memory of their own; what is stored so already stays where it
/// is. With int4 the embedding and the head are q8_0. Norms are fp32 as ever. Throws Error(unusable) naming a
/// tensor with a value that the format cannot hold. Progress: stage "quantize", in matrix elements.
Weights quantize(const Config& config, const Weights& weights, Dtype dtype, ThreadPool& pool,
                 const Progress& progress = {});

}  // namespace fs::model

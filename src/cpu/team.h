#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "cpu/aligned.h"
#include "cpu/backend.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "model/dtype.h"

namespace fs::cpu {

/// What every operation works with: threads, their kernels, and memory that is kept from one operation to the
/// next.
struct Team {
  Team(std::size_t threads, const Kernels& chosen, Activations act = Activations::f32)
      : pool(threads), kernels(chosen), activations(act), scratch(threads) {}

  /// Makes room for `size` floats in the scratch of every thread.
  void reserve_scratch(std::size_t size) {
    for (auto& own : scratch) own.reserve(size);
  }

  Pool pool;
  const Kernels& kernels;
  Activations activations;
  /// Rows are decode steps, each summed as it would be alone: products as of a few tokens, however many.
  bool steps = false;
  std::vector<AlignedFloats> scratch;                      // [threads]
  std::array<AlignedFloats, model::dtype_count> prepared;  // a few tokens as dots() of a Dtype takes them
  std::array<AlignedBytes, model::dtype_count> tiles;      // many tokens as gemm() of a Dtype takes them
  AlignedFloats pass;                                      // what the operations of a pass hand on
  AlignedFloats rounded;   // activations, where they are rounded before a product
  AlignedFloats partials;  // what attention merges
};

}  // namespace fs::cpu

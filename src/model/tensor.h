#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/dtype.h"

namespace fs::model {

/// A named tensor: what a weight file holds and what is written into one. A view: it does not own its bytes.
struct Tensor {
  std::string name;  ///< "model.layers.0.self_attn.q_proj.weight"
  Dtype dtype = Dtype::f32;
  std::vector<std::size_t> shape;    ///< row-major, slowest dimension first
  std::span<const std::byte> bytes;  ///< product(shape) elements, little-endian, perhaps unaligned
  std::string source;                ///< the file it was read from, for messages; empty in memory
};

/// "[151936, 1024]".
inline std::string shape_text(std::span<const std::size_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace fs::model

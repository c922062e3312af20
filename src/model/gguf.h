#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/ggml_type.h"
#include "model/gguf_metadata.h"

namespace fs::model {

// The GGUF format, versions 2 and 3, little-endian:
//
//   "GGUF"  u32 version  u64 tensors  u64 pairs
//   pairs:   key, u32 value type, value
//   tensors: name, u32 rank, u64 sizes[rank] (fastest first), u32 type, u64 offset (into the data)
//   zeroes up to general.alignment (32), then the data: each tensor at a multiple of the alignment
//
// Strings are a u64 length and their bytes. Everything in a file is checked before any of it is used: counts
// and lengths against the bytes that are left, sizes before they are multiplied, offsets against each other.

/// A stored tensor: a view into the file.
struct GgufTensor {
  std::string_view name;  ///< "blk.0.attn_q.weight"
  GgmlType type = GgmlType::f32;
  std::vector<std::size_t> shape;    ///< row-major, slowest dimension first: the file's sizes reversed
  std::span<const std::byte> bytes;  ///< rows of whole blocks, at a multiple of the alignment in the file
};

/// A whole file, validated: views into it.
struct GgufFile {
  std::uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  ///< in order of offset
};

/// Parses and validates a whole file in memory; `source` names it in errors. Throws Error(unusable), naming
/// the key or the tensor, for anything malformed and for tensor types that `fs` does not read.
GgufFile parse_gguf(std::span<const std::byte> file, const std::string& source);

}  // namespace fs::model

#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/dtype.h"

namespace fs::model {

/// How a tensor of a GGUF file is stored: the types that `fs` reads, by the numbers of the file format.
enum class GgmlType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30
};

/// The layout of a type: rows are whole blocks of `block_elements`, each of `block_bytes`.
struct GgmlLayout {
  GgmlType type;
  std::string_view name;  ///< "Q4_K": llama.cpp's spelling
  std::size_t block_elements, block_bytes;
};

/// The layout of a type that `fs` reads.
const GgmlLayout& layout(GgmlType type);
/// The same by the file's number; null for a type that `fs` does not read.
const GgmlLayout* find_layout(std::uint32_t type);

/// "Q5_1", "IQ4_NL", …: for messages, also of types that `fs` does not read; "type 77" for an unknown number.
std::string ggml_type_name(std::uint32_t type);

/// The Dtype whose bytes are the same, so that a tensor can be used where it lies; nothing for a type that
/// has to be dequantised.
std::optional<Dtype> native_dtype(GgmlType type);

/// The inverse; nothing for a Dtype that GGUF has not.
std::optional<GgmlType> ggml_type(Dtype dtype);

/// Decodes out.size() consecutive elements at `data`, whole blocks, to fp32: value by value what llama.cpp's
/// dequantize_row_* and the `gguf` package compute (each fp32 operation rounded once, in their order).
void dequantize(GgmlType type, const std::byte* data, std::span<float> out);

}  // namespace fs::model

#include "model/ggml_type.h"

#include <fmt/format.h>

#include <array>

namespace fs::model {
namespace {

constexpr std::array layouts = {
    GgmlLayout{GgmlType::f32, "F32", 1, 4},       GgmlLayout{GgmlType::f16, "F16", 1, 2},
    GgmlLayout{GgmlType::bf16, "BF16", 1, 2},     GgmlLayout{GgmlType::q8_0, "Q8_0", 32, 34},
    GgmlLayout{GgmlType::q4_0, "Q4_0", 32, 18},   GgmlLayout{GgmlType::q4_1, "Q4_1", 32, 20},
    GgmlLayout{GgmlType::q4_k, "Q4_K", 256, 144}, GgmlLayout{GgmlType::q5_k, "Q5_K", 256, 176},
    GgmlLayout{GgmlType::q6_k, "Q6_K", 256, 210},
};

/// By the file's number; removed types are empty.
constexpr std::array<std::string_view, 41> names = {
    "F32",   "F16",    "Q4_0",  "Q4_1", "",     "",        "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
    "IQ2_S", "IQ4_XS", "I8",    "I16",  "I32",  "I64",     "F64",    "IQ1_M",   "BF16",  "",       "",
    "",      "TQ1_0",  "TQ2_0", "",     "",     "",        "MXFP4",  "NVFP4"};

}  // namespace

const GgmlLayout* find_layout(std::uint32_t type) {
  for (const GgmlLayout& candidate : layouts) {
    if (static_cast<std::uint32_t>(candidate.type) == type) return &candidate;
  }
  return nullptr;
}

const GgmlLayout& layout(GgmlType type) { return *find_layout(static_cast<std::uint32_t>(type)); }

std::string ggml_type_name(std::uint32_t type) {
  if (type < names.size() && !names[type].empty()) return std::string(names[type]);
  return fmt::format("type {}", type);
}

std::optional<Dtype> native_dtype(GgmlType type) {
  switch (type) {
    case GgmlType::f32:
      return Dtype::f32;
    case GgmlType::f16:
      return Dtype::f16;
    case GgmlType::bf16:
      return Dtype::bf16;
    case GgmlType::q8_0:
      return Dtype::q8_0;  // rows of a file are whole blocks
    default:
      return std::nullopt;
  }
}

std::optional<GgmlType> ggml_type(Dtype dtype) {
  for (const GgmlLayout& candidate : layouts) {
    if (native_dtype(candidate.type) == dtype) return candidate.type;
  }
  return std::nullopt;
}

}  // namespace fs::model

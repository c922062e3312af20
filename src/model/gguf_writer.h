#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "model/ggml_type.h"
#include "model/gguf_metadata.h"
#include "model/safetensors.h"

namespace fs::model {

/// The metadata of a GGUF file that is to be written, pair by pair, in the order in which they are added.
class GgufPairs {
 public:
  void add_u32(std::string_view key, std::uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_boolean(std::string_view key, bool value);
  void add_text(std::string_view key, std::string_view value);
  void add_i32s(std::string_view key, std::span<const std::int32_t> values);
  void add_texts(std::string_view key, std::span<const std::string_view> values);

  std::uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, GgufValueType type);

  std::uint64_t count_ = 0;
  std::string bytes_;
};

/// A tensor that is to be written: its name in the file, row-major shape (slowest dimension first).
struct GgufSlot {
  std::string name;
  GgmlType type = GgmlType::f32;
  std::vector<std::size_t> shape;
};

/// Writes a GGUF file, version 3, with these pairs and tensors, in the given order, at the
/// default alignment. produce(i, sink) is called once for each tensor to hand over exactly its bytes. The
/// file's bytes depend on the arguments alone. Throws Error(failed) if it cannot be written (the old file
/// then stays as it was), if rows are no whole blocks or bytes do not fit a shape.
void write_gguf(const std::filesystem::path& path, const GgufPairs& pairs, std::span<const GgufSlot> tensors,
                const std::function<void(std::size_t tensor, const ByteSink& sink)>& produce,
                AtomicFile::Existing existing = AtomicFile::Existing::replace);

}  // namespace fs::model

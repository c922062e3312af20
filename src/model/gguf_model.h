#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/gguf_vocabulary.h"
#include "model/weights.h"

namespace fs::model {

/// A model in one GGUF file: mapped, its metadata and tensor table validated whole.
class GgufModel {
 public:
  /// Throws Error(unusable) naming file and key or tensor; tensors that are missing, not expected or of
  /// another shape than the metadata says included.
  static std::shared_ptr<const GgufModel> open(const std::filesystem::path& path);
  /// The same from memory, which must outlive it; `source` names it in errors.
  static std::shared_ptr<const GgufModel> parse(std::span<const std::byte> bytes, const std::string& source);

  const GgufFile& file() const { return file_; }
  const Config& config() const { return config_; }
  /// Nothing for a file that says it has none.
  const std::optional<GgufVocabulary>& vocabulary() const { return vocabulary_; }

  /// Bytes that load() takes beside the mapped file: of the tensors that are dequantised to fp32, which keeps
  /// their values exactly.
  std::size_t dequantized_bytes() const;

  /// The weights; `self` is kept alive by them. Progress: stage "dequantize", in bytes of fp32.
  static Weights load(const std::shared_ptr<const GgufModel>& self, ThreadPool& pool,
                      const Progress& progress);

 private:
  GgufModel(std::optional<MappedFile> map, std::span<const std::byte> bytes, const std::string& source);

  std::optional<MappedFile> map_;  // keeps the bytes alive
  GgufFile file_;
  Config config_;
  std::optional<GgufVocabulary> vocabulary_;
  std::vector<std::string> names_;  // [tensors] Hugging Face's, in order of file_.tensors
};

}  // namespace fs::model

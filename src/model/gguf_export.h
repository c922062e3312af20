#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

#include "base/atomic_file.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "model/config.h"
#include "model/dtype.h"
#include "model/gguf_vocabulary.h"
#include "model/weights.h"

namespace fs::model {

/// What a GGUF file says beside the configuration.
struct GgufExport {
  std::string name;                            ///< general.name
  Dtype dtype = Dtype::q8_0;                   ///< of the matrices: f32, f16, bf16 or q8_0; norms are F32
  const GgufVocabulary* vocabulary = nullptr;  ///< null: none
  AtomicFile::Existing existing = AtomicFile::Existing::replace;
};

/// Throws Error(usage), naming the first tensor, if a GGUF file cannot hold this model in `dtype`: its block
/// formats take rows of whole blocks only.
void check_gguf_dtype(const Config& config, Dtype dtype);

/// Writes a GGUF file of the model, matrices encoded on the way, a few MiB at a time: decoded,
/// they are what quantize() to the same dtype gives. Without output.weight where the embeddings are tied. The
/// file's bytes depend on the arguments alone. Throws as check_gguf_dtype() and encode_rows() do, and
/// Error(failed) if it cannot be written; the old file then stays as it was. Progress: stage "write", in
/// bytes of weights.
void export_gguf(const std::filesystem::path& path, const Config& config, const Weights& weights,
                 const GgufExport& options, ThreadPool& pool, const Progress& progress = {});

}  // namespace fs::model

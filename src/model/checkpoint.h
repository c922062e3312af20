#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "base/types.h"
#include "model/config.h"
#include "model/gguf_model.h"
#include "model/locate.h"
#include "model/weights.h"

namespace fs::model {

/// One stored tensor, as `fs inspect` lists it.
struct TensorInfo {
  std::string name;   ///< as stored: "model.layers.0.self_attn.q_proj.weight", in GGUF "blk.0.attn_q.weight"
  std::string dtype;  ///< as stored: "BF16", "Q4_K", …
  std::vector<std::size_t> shape;
  std::size_t bytes = 0;
  std::filesystem::path file;  ///< empty for a synthetic model
};

/// A checkpoint whose small files are read and validated and whose weights are not loaded yet: enough to
/// tokenize, to inspect, and to refuse a context that cannot fit before any weight is touched.
class Checkpoint {
 public:
  /// Reads config.json and, where present, generation_config.json; one of them says eos_token_id. Of a GGUF
  /// file, its metadata and tensor table. Throws Error(unusable).
  static Checkpoint open(const Location& location);

  const Location& location() const { return location_; }
  const Config& config() const { return config_; }
  const GenerationConfig& generation() const { return generation_; }
  /// tokenizer.json beside the weights; nothing for a synthetic model, a GGUF file (which has its vocabulary
  /// in it) or where the file is absent.
  const std::optional<std::filesystem::path>& tokenizer_file() const { return tokenizer_file_; }

  /// The GGUF file that the model is in; null if it is in none.
  const GgufModel* gguf() const { return gguf_.get(); }

  /// Validates every tensor as load() does, without reading the weights: headers only. In file order.
  std::vector<TensorInfo> tensors() const;
  /// Of a tied checkpoint that stores lm_head.weight all the same: whether it equals the embedding, byte for
  /// byte (it reads both). Nothing where it is not stored, or not tied.
  std::optional<bool> redundant_head_equals_embedding() const;

  /// Maps (or generates) the weights. Throws Error(unusable) naming file and tensor: missing, surplus, wrong
  /// shape or dtype, outside the file, overlapping. Progress: stage "generate", in bytes, for a synthetic
  /// model; "dequantize" for a GGUF file whose blocks are not used as they lie; other files are only mapped,
  /// which takes no time.
  Weights load(ThreadPool& pool, const Progress& progress = {}) const;

 private:
  Location location_;
  Config config_;
  GenerationConfig generation_;
  std::optional<std::filesystem::path> tokenizer_file_;
  std::shared_ptr<const GgufModel> gguf_;
};

}  // namespace fs::model

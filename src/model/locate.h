#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace fs::model {

/// Where a checkpoint is. Exactly one of `path` (directory or file) and `synthetic` (shape name) is set.
struct Location {
  std::string spec;            ///< what the user wrote, or what was chosen for them: for messages
  std::filesystem::path path;  ///< a directory with config.json, or one weight file beside its config.json
  std::string synthetic;       ///< "qwen3-0.6b", …
  std::uint64_t seed = 0;      ///< of a synthetic model
  std::optional<std::string> notice;  ///< to be said once on stderr (the bundled model was chosen)
};

/// Finds the model: `spec` (DIR | FILE | ORG/NAME | synthetic:SHAPE[@SEED]) if given, else $FS_MODEL, else
/// Qwen/Qwen3-0.6B in the Hugging Face cache (HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub), else the
/// bundled tiny model (with a notice). Touches no weights. Throws Error(unusable) saying where it looked.
Location locate(const std::optional<std::string>& spec);

}  // namespace fs::model

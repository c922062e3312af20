#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace fs::model {

/// Where a checkpoint is. Exactly one of `path` (directory or file) and `synthetic` (shape name) is set.
struct Location {
  std::string spec;  ///< what the user wrote, or what was chosen for them: for messages
  /// A directory with config.json, one .safetensors file beside its config.json, or a .gguf file.
  std::filesystem::path path;
  std::string synthetic;              ///< "qwen3-0.6b", …
  std::uint64_t seed = 0;             ///< of a synthetic model
  std::optional<std::string> notice;  ///< to be said once on stderr (the bundled model was chosen)
};

/// Where locate() looks when it is not told a path.
struct SearchPaths {
  std::string fs_model;  ///< $FS_MODEL, empty if not set
  std::filesystem::path
      hub_cache;  ///< $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub; empty without a home
  std::filesystem::path bundled;  ///< share/fs/tiny beside the executable's bin/

  static SearchPaths from_environment();
};

/// Finds the model: `spec` (DIR | FILE | ORG/NAME | synthetic:SHAPE[@SEED]) if given, else $FS_MODEL, else
/// Qwen/Qwen3-0.6B in the Hugging Face cache, else the bundled tiny model (with a notice). ORG/NAME is the
/// cache's refs/main, or its only snapshot; an existing path of that name wins. A directory without
/// config.json that holds one .gguf file means that file. A cached model without config or weights is an
/// error, never passed over. Touches no weights. Throws Error(unusable) saying where it looked, Error(usage)
/// for an unknown SHAPE or a SEED that is no 64-bit integer (0 if not given).
Location locate(const std::optional<std::string>& spec,
                const SearchPaths& paths = SearchPaths::from_environment());

}  // namespace fs::model

#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend.h"

namespace fs::engine {

/// A flag that is given and that not every backend has.
struct BackendFlag {
  std::string_view name;  ///< "--kv"
  std::string text;       ///< as given: "--kv f16"
  /// Which values are computed depends on it: auto takes a backend that has it, where of others it is said
  /// that they have no effect.
  bool decides = false;
  std::vector<std::string_view> backends;  ///< that have it
};

/// Those of the options that `backend` does not have.
std::vector<BackendFlag> flags_without_effect(std::string_view backend, const BackendOptions& options);

/// "--kv f16: not for backend reference, only for cpu, cuda and cuda-emulated"
std::string why_without_effect(std::string_view backend, const BackendFlag& flag);

}  // namespace fs::engine

#pragma once
#include <functional>
#include <memory>

#include "engine/backend.h"
#include "model/weights.h"

namespace fs::cli {

/// Where a test program reaches into `fs`.
struct Hooks {
  /// Called with the weights after they are loaded and before a backend is made of them.
  std::function<void(model::Weights&)> after_load = {};
  /// Called with a new backend and its weights; what it returns is used instead.
  std::function<std::unique_ptr<engine::Backend>(std::unique_ptr<engine::Backend>, const model::Weights&)>
      after_make = {};
};

/// The whole program: parses the command line, runs the command, prints any error as one line on stderr.
/// Returns the exit code (base/error.h).
int run(int argc, const char* const* argv, const Hooks& hooks = {});

}  // namespace fs::cli

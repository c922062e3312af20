#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/types.h"
#include "cli/pins.h"
#include "model/checkpoint.h"

namespace fs::cli {

/// One pinned file, looked at.
struct PinCheck {
  Pin pin;
  std::string problem;  ///< empty: the file is the published one
};

/// sha256 of a file, as lower-case hexadecimal digits. Progress: stage "verify", in bytes. Throws
/// Error(unusable).
std::string sha256_of_file(const std::filesystem::path& path, const Progress& progress);

/// What tells two models apart: "synthetic:SHAPE@SEED", or "sha256:" and the digest of the weight file; of
/// several files the digest of the lines of their digests, in order of their names. Reads all the weights.
/// Throws Error(unusable).
std::string model_hash(const model::Checkpoint& checkpoint, const Progress& progress);

/// Compares the files in `directory` with Qwen3-0.6B's pins. What is missing or differs is a problem, not an
/// exception.
std::vector<PinCheck> verify_qwen3_0_6b(const std::filesystem::path& directory, const Progress& progress);

}  // namespace fs::cli

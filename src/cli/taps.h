#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "engine/recorder.h"

namespace fs::cli {

/// --taps, --layers: which values inside the forward pass.
struct TapOptions {
  std::optional<std::string> taps;    ///< "embed,block_out"; every point if absent
  std::optional<std::string> layers;  ///< "0,13,27" or "0-5"; every layer if absent
};
/// `verb` says what is done with them: "record", "compare". Returns both flags.
std::vector<CLI::Option*> add_taps(CLI::App& command, TapOptions& options, const std::string& verb);

/// Throws Error(usage) for a point or a layer that does not exist.
engine::TapChoice chosen_taps(const TapOptions& options, std::size_t n_layers);

}  // namespace fs::cli

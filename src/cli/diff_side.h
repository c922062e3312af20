#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/open_model.h"
#include "cli/spec.h"
#include "engine/backend.h"
#include "engine/recording.h"

namespace fs::cli {

/// One side of a comparison: a model that runs, or a recorded run of one.
struct Side {
  std::string text;                                ///< as --a or --b names it
  std::optional<std::string> file;                 ///< of a recorded side: the file; empty for "golden"
  ComputeSpec spec;                                ///< of a side that runs
  std::shared_ptr<const OpenModel> model;          ///< null for two recorded sides
  std::shared_ptr<const engine::Backend> backend;  ///< null for a recorded side
  std::optional<engine::Recording> recording;

  bool recorded() const { return file.has_value(); }
};

struct Sides {
  Side a, b;

  /// The model of a side that runs, A's if both do; for recorded sides the one that they should be of.
  const OpenModel* model() const { return a.recorded() && b.model ? b.model.get() : a.model.get(); }
};

/// Reads SPEC, `golden` or `dump:FILE.safetensors`. Throws Error(usage) naming `flag`.
Side parse_side(std::string_view text, std::string_view flag, const ComputeSpec& defaults);

/// Opens the models, without their weights, and the recordings. Unless `force`, throws Error(unusable) if a
/// recording is of another model. A `golden` side is the bundled recording of this model, of the prompt
/// `tokens` if there is one; Error(unusable) where there is none. Error(usage) if the two models differ in
/// shape.
void open_sides(Sides& sides, const std::optional<std::vector<TokenId>>& tokens, bool force,
                const Progress& progress);

/// Loads the weights of the sides that run, once where both use the same.
void load_sides(Sides& sides, const Hooks& hooks, ProgressBar& progress);

/// The tokens that a recording was made of. Throws Error(unusable) if it does not say.
std::vector<TokenId> recorded_tokens(const Side& side);

}  // namespace fs::cli

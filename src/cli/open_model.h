#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/run.h"
#include "cli/terminal.h"
#include "engine/backend.h"
#include "model/checkpoint.h"
#include "text/tokenizer.h"

namespace fs::cli {

/// A model before its weights are loaded: all that is needed to refuse a command early.
struct OpenModel {
  model::Checkpoint checkpoint;
  std::optional<text::Tokenizer> loaded_tokenizer;
  std::size_t context = 0;                  ///< tokens at most: --ctx or the model's limit
  bool quiet = false;                       ///< no notices
  mutable std::set<std::string> said = {};  ///< notices of backends: of many, each says the same

  /// Null for a model without one.
  const text::Tokenizer* tokenizer() const { return loaded_tokenizer ? &*loaded_tokenizer : nullptr; }
  const std::string& name() const { return checkpoint.location().spec; }
  /// Ids that may be generated: the tokenizer's, without the padding of the embedding table.
  std::size_t n_ids() const;
  /// Throws Error(usage) if the prompt is empty, has an id beyond the vocabulary or does not fit into the
  /// context together with `room` more tokens.
  void check_prompt(const std::vector<TokenId>& ids, std::size_t room) const;
};

/// Finds the model that --model or its absence means; says which one if the user has not. Throws Error.
model::Location locate_model(const CommonOptions& common);

/// The tokenizer beside a checkpoint or in its GGUF file, if there is one. Throws Error(unusable), also if it
/// has more ids than the embedding has rows.
std::optional<text::Tokenizer> load_tokenizer(const model::Checkpoint& checkpoint);

engine::BackendOptions backend_options(const ComputeOptions& compute);

/// Refuses what cannot run, as far as it can be told before weights are loaded: flags that the backend does
/// not have, a device that is not there, --act for weights that it is not for. Throws Error.
void check_compute(const OpenModel& model, const ComputeOptions& compute);

/// Finds and opens the model, says which one if the user has not, and checks --ctx and the rest of the flags.
/// Throws Error.
OpenModel open_model(const CommonOptions& common, const ComputeOptions& compute);

/// Loads the weights, as they are stored.
model::Weights load_weights(const OpenModel& model, const ComputeOptions& compute, const Hooks& hooks,
                            ProgressBar& progress);

/// The weights in the format that --dtype names.
model::Weights convert_weights(const OpenModel& model, const ComputeOptions& compute, model::Weights weights,
                               ProgressBar& progress);

/// Hands the weights to the backend that the flags choose. Throws Error(usage).
std::unique_ptr<engine::Backend> make_backend(const OpenModel& model, const ComputeOptions& compute,
                                              model::Weights weights, const Hooks& hooks);

/// All three in one.
std::unique_ptr<engine::Backend> load_backend(const OpenModel& model, const ComputeOptions& compute,
                                              const Hooks& hooks, ProgressBar& progress);

/// The tokenizer of a model, for commands that need nothing else of it: beside tokenizer.json there may be no
/// weights and no config. `spec` may also be that file itself. Throws Error(usage) for a model without one.
text::Tokenizer open_tokenizer(const CommonOptions& common);

}  // namespace fs::cli

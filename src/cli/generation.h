#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "engine/backend.h"
#include "engine/sampler.h"
#include "text/tokenizer.h"

namespace fs::cli {

/// One prompt to continue.
struct GenerationRequest {
  std::vector<TokenId> prompt;            ///< at least one id
  std::optional<std::size_t> max_tokens;  ///< no limit but the context if absent
  std::vector<TokenId> eos_ids;           ///< generation ends after any of these
  std::vector<std::string> stops;         ///< generation ends before any of these texts
  engine::SamplerOptions sampler;
};

enum class StopReason { eos, stop, length, context, interrupted };
/// "eos", "stop", …
std::string_view name(StopReason reason);

/// What came of it.
struct Generation {
  std::vector<TokenId> ids;      ///< every token chosen, the end-of-text token too
  std::vector<double> logprobs;  ///< of each, by the model: log softmax of the logits before any filter
  std::string text;              ///< without special tokens and without the stop text
  StopReason reason = StopReason::length;
  std::string stop_text;           ///< the one that ended it
  double first_token_seconds = 0;  ///< from the start of the prompt until the first token was chosen
  double seconds = 0;              ///< from the start of the prompt to the end
  std::size_t proposed = 0;        ///< tokens that were guessed
  std::size_t accepted = 0;        ///< those of them that were chosen

  /// Tokens a second after the first one; nothing for fewer than two.
  std::optional<double> tokens_per_second() const;
};

/// How prompts are run.
struct GenerationPlan {
  std::size_t context = 0;   ///< tokens of each session
  std::size_t parallel = 1;  ///< prompts at once, at most
  std::size_t threads = 1;   ///< that choose tokens
  bool speculate = false;  ///< guess what follows (engine/prompt_lookup.h) and run the guesses with the token
};

/// What it tells as it goes.
struct GenerationEvents {
  /// Text of an only prompt as it becomes certain, in whole characters; the sum is Generation::text.
  std::function<void(std::string_view)> on_text;
  /// The answers, in the order of the requests.
  std::function<void(const GenerationRequest&, const Generation&)> on_done;
  Progress progress;  ///< of prompts
};

/// Continues prompts, each on a session of its own. Some run at once where one read of the weights serves
/// them all; as one ends the next takes its place. How many, and guesses, change no token of any of them. A
/// null tokenizer makes a text the ids, separated by blanks. n_ids: only ids below are chosen. Ctrl-C ends
/// those that run with StopReason::interrupted, and begins no other.
void generate(const engine::Backend& backend, const text::Tokenizer* tokenizer, std::size_t n_ids,
              std::span<const GenerationRequest> requests, const GenerationPlan& plan,
              const GenerationEvents& events);

}  // namespace fs::cli

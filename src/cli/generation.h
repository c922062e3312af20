#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "engine/sampler.h"
#include "engine/session.h"
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

  /// Tokens a second after the first one; nothing for fewer than two.
  std::optional<double> tokens_per_second() const;
};

/// Continues a prompt on a fresh session, token by token. `on_text` receives the text as it becomes certain,
/// in whole characters; their sum is Generation::text. A null tokenizer makes the text the ids, separated by
/// blanks. n_ids: only ids below are chosen. `progress` hears of the prompt. Ctrl-C ends it with
/// StopReason::interrupted.
Generation generate(engine::Session& session, const text::Tokenizer* tokenizer, std::size_t n_ids,
                    const GenerationRequest& request, const std::function<void(std::string_view)>& on_text,
                    const Progress& progress);

/// log softmax(logits)[id], summed in double.
double log_probability(std::span<const float> logits, TokenId id);

}  // namespace fs::cli

#pragma once
#include <span>
#include <string>

#include "base/types.h"
#include "cli/json_output.h"
#include "engine/diff.h"
#include "text/tokenizer.h"

namespace fs::cli {

/// The best token of one side, and how far ahead of the next it is.
struct TopTwo {
  TokenId best = 0, second = 0;
  double margin = 0;  ///< logit of best − logit of second
};
/// Ties go to the lowest id, as in the sampler. logits: at least 2.
TopTwo top_two(std::span<const float> logits);

/// What two sides that saw the same tokens think of the next one.
struct NextToken {
  TopTwo a, b;
  double rms = 0, max_abs = 0;  ///< of the differences of all logits
  double lead = 0;              ///< A's logit of its own choice − A's logit of B's choice
  bool within = false;          ///< every logit is within tolerance

  bool same() const { return a.best == b.best; }
  /// Whether the noise between the sides explains different choices: A's lead over B's choice is at most four
  /// times the typical difference of a logit. Whether that noise is rounding, `within` says.
  bool near_tie() const { return lead <= 4 * rms; }
};
/// a, b: [ids], at least 2.
NextToken compare_next_token(std::span<const float> a, std::span<const float> b,
                             const engine::Tolerance& tolerance);

/// "A and B choose 12 \" Paris\", …": one line for people, without a newline.
std::string next_token_text(const NextToken& next, const text::Tokenizer* tokenizer);
Json next_token_json(const NextToken& next, const text::Tokenizer* tokenizer);

}  // namespace fs::cli

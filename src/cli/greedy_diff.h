#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "cli/diff_side.h"
#include "cli/json_output.h"
#include "cli/next_token.h"
#include "engine/diff.h"

namespace fs::cli {

/// Both sides generate greedily; they saw the same tokens up to the first difference.
struct GreedyDiff {
  std::size_t wanted = 0;
  std::vector<TokenId> ids;     ///< that both chose
  bool ended = false;           ///< the last of them ends the text
  double smallest_margin = 0;   ///< of side A over the steps that agree
  std::size_t smallest_at = 0;  ///< step of it, from 1

  std::optional<NextToken> divergence;  ///< after `ids`

  bool within() const { return !divergence || divergence->within; }
};

/// Generates up to `count` tokens on both sides and stops where they differ, or after an end-of-text token.
GreedyDiff greedy_diff(const Sides& sides, const std::vector<TokenId>& prompt, std::size_t count,
                       const engine::Tolerance& tolerance, const Progress& progress);

/// One line for people.
std::string greedy_text(const GreedyDiff& diff, const text::Tokenizer* tokenizer);
Json greedy_json(const GreedyDiff& diff, const text::Tokenizer* tokenizer);

}  // namespace fs::cli

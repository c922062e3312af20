#include "cli/greedy_diff.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cli/interruptible.h"
#include "engine/session.h"

namespace fs::cli {

GreedyDiff greedy_diff(const Sides& sides, const std::vector<TokenId>& prompt, std::size_t count,
                       const engine::Tolerance& tolerance, const Progress& progress) {
  engine::Session a(*sides.a.backend, sides.a.model->context), b(*sides.b.backend, sides.b.model->context);
  const std::size_t n_ids = sides.a.model->n_ids();
  if (n_ids < 2) fail(ExitCode::usage, "--greedy: a vocabulary of one token leaves nothing to choose");
  const auto& eos = sides.a.model->checkpoint.generation().eos_ids;
  InterruptibleTaps interruptible;
  engine::ForwardOptions forward;
  forward.taps = &interruptible;
  forward.progress = progress;
  GreedyDiff result;
  result.wanted = count;
  std::vector<TokenId> next = prompt;
  while (result.ids.size() < count && !result.ended) {
    const auto logits_a = a.forward(next, forward).first(n_ids);
    const auto logits_b = b.forward(next, forward).first(n_ids);
    const TopTwo top = top_two(logits_a);
    if (top.best != top_two(logits_b).best) {
      result.divergence = compare_next_token(logits_a, logits_b, tolerance);
      return result;
    }
    if (result.ids.empty() || top.margin < result.smallest_margin) {
      result.smallest_margin = top.margin;
      result.smallest_at = result.ids.size() + 1;
    }
    result.ids.push_back(top.best);
    result.ended = std::find(eos.begin(), eos.end(), top.best) != eos.end();
    next = {top.best};
  }
  return result;
}

std::string greedy_text(const GreedyDiff& diff, const text::Tokenizer* tokenizer) {
  if (diff.divergence) {
    return fmt::format("greedy: token {} of {} is the first that differs: {}\n", diff.ids.size() + 1,
                       diff.wanted, next_token_text(*diff.divergence, tokenizer));
  }
  return fmt::format(
      "greedy: {} tokens, the same on both sides{} · smallest margin of A {:.6g} at token {}\n",
      diff.ids.size(), diff.ended ? " (end of text)" : "", diff.smallest_margin, diff.smallest_at);
}

Json greedy_json(const GreedyDiff& diff, const text::Tokenizer* tokenizer) {
  Json document = {{"wanted", diff.wanted},
                   {"ids", diff.ids},
                   {"pieces", json_pieces(tokenizer, diff.ids)},
                   {"end_of_text", diff.ended},
                   {"within", diff.within()},
                   {"smallest_margin", diff.ids.empty() ? Json() : Json(diff.smallest_margin)}};
  document["divergence"] = diff.divergence ? next_token_json(*diff.divergence, tokenizer) : Json();
  return document;
}

}  // namespace fs::cli

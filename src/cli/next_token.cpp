#include "cli/next_token.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fs::cli {

TopTwo top_two(std::span<const float> logits) {
  TopTwo top{0, 1, 0};
  if (logits[1] > logits[0]) std::swap(top.best, top.second);
  for (std::size_t id = 2; id < logits.size(); ++id) {
    if (logits[id] > logits[top.best]) {
      top.second = std::exchange(top.best, static_cast<TokenId>(id));
    } else if (logits[id] > logits[top.second]) {
      top.second = static_cast<TokenId>(id);
    }
  }
  top.margin = double{logits[top.best]} - logits[top.second];
  return top;
}

NextToken compare_next_token(std::span<const float> a, std::span<const float> b,
                             const engine::Tolerance& tolerance) {
  NextToken result;
  result.a = top_two(a);
  result.b = top_two(b);
  result.lead = double{a[result.a.best]} - a[result.b.best];
  result.within = true;
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(double{b[i]} - a[i]);
    result.max_abs = std::max(result.max_abs, error);
    squares += error * error;
    result.within = result.within && error <= tolerance.atol + tolerance.rtol * std::abs(double{a[i]});
  }
  result.rms = std::sqrt(squares / static_cast<double>(a.size()));
  return result;
}

std::string next_token_text(const NextToken& next, const text::Tokenizer* tokenizer) {
  const auto token = [&](TokenId id) { return fmt::format("{} {}", id, quoted_piece(tokenizer, id)); };
  const std::string noise =
      fmt::format("logits differ by {:.3g} (root mean square), {:.3g} at most", next.rms, next.max_abs);
  if (next.same()) {
    return fmt::format("A and B choose {}, A ahead of {} by {:.6g}; {}", token(next.a.best),
                       token(next.a.second), next.a.margin, noise);
  }
  const auto side = [&](const char* name, const TopTwo& top) {
    return fmt::format("{} chooses {}, ahead of {} by {:.6g}", name, token(top.best), token(top.second),
                       top.margin);
  };
  return fmt::format("{}; {}; {}; A prefers its choice to B's by {:.6g}: {}", side("A", next.a),
                     side("B", next.b), noise, next.lead,
                     !next.near_tie() ? "not a near tie"
                     : next.within    ? "a near tie, which rounding decides"
                                      : "no more than the noise between them, which is beyond tolerance");
}

Json next_token_json(const NextToken& next, const text::Tokenizer* tokenizer) {
  const auto side = [&](const TopTwo& top) {
    return Json{{"id", top.best},
                {"piece", json_piece(tokenizer, top.best)},
                {"second", top.second},
                {"margin", top.margin}};
  };
  return {{"a", side(next.a)},       {"b", side(next.b)}, {"same", next.same()},        {"rms", next.rms},
          {"max_abs", next.max_abs}, {"lead", next.lead}, {"near_tie", next.near_tie()}};
}

}  // namespace fs::cli

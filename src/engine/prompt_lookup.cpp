#include "engine/prompt_lookup.h"

#include <algorithm>

namespace fs::engine {

std::vector<TokenId> look_up(std::span<const TokenId> history, std::size_t most) {
  constexpr std::size_t shortest = 2,
                        longest = 32;  // tokens that agree; beyond, one place is as good as another
  if (most == 0) return {};
  const std::size_t end = history.size();
  std::size_t agree = 0, from = 0;
  for (std::size_t at = end; at-- > 1 && agree < longest;) {
    std::size_t here = 0;
    while (here < at && here < longest && history[at - 1 - here] == history[end - 1 - here]) ++here;
    if (here > agree) {
      agree = here;
      from = at;
    }
  }
  if (agree < shortest) return {};
  std::vector<TokenId> guess;
  for (std::size_t at = from; guess.size() < std::min(most, agree); ++at) {
    guess.push_back(at < end ? history[at] : guess[at - end]);  // what repeats goes on repeating
  }
  return guess;
}

}  // namespace fs::engine

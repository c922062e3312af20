#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "base/types.h"

namespace fs::engine {

/// Guesses what follows `history` (prompt lookup decoding, Saxena 2023): of its earlier places where the last
/// tokens have stood before, two at least, the one that agrees furthest back, of equals the latest; and what
/// followed there. The further it agrees the more is guessed: as many tokens, `most` at most.
std::vector<TokenId> look_up(std::span<const TokenId> history, std::size_t most);

}  // namespace fs::engine

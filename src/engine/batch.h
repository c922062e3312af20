#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "engine/session.h"

namespace fs::engine {

/// What one session brings to a pass: the token chosen last, and what might follow it.
struct Turn {
  Session& session;
  std::span<const TokenId> tokens;  ///< [≥ 1]
};

/// Decode steps of several sessions of one backend, which share each read of the weights where it can
/// (Backend::run_steps). Every value is what a session alone would find, to the bit.
class Batch {
 public:
  /// The backend must outlive it.
  explicit Batch(const Backend& backend) : backend_(backend) {}

  /// Appends each turn's tokens to its session, each of which has one turn at most. Throws Error(usage) as
  /// Session::forward does, and then has run nothing.
  void forward(std::span<const Turn> turns);

  /// The logits [vocab_size] after the first row + 1 tokens of a turn, until the next forward(). Throws
  /// Error(failed) naming the position if one is not finite.
  std::span<const float> logits(std::size_t turn, std::size_t row) const;

  /// What the sampler chooses after the turn's first token, and after each further token while it is the one
  /// that was chosen: 1 to turn.tokens.size() choices, those that Session::next would make one after another.
  /// The session is rewound to stand before the last of them.
  std::vector<Choice> choose(std::size_t turn, const Sampler& sampler);

 private:
  struct Ran {
    Session& session;
    std::size_t first_row, rows, first_position;
  };

  const Backend& backend_;
  std::vector<Ran> ran_;
  std::vector<float> logits_;  // [rows of all turns, vocab_size]
};

}  // namespace fs::engine

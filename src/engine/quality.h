#pragma once
#include <cstddef>
#include <span>

#include "base/types.h"

namespace fs::engine {

// How well a model predicts a text, and how far two models are apart on it. Sums are in double; logarithms
// are natural, so that divergences are in nats.

/// The tokens of a text by the probability that the model gave each.
class Perplexity {
 public:
  void add(double log_probability) {
    sum_ += log_probability;
    ++count_;
  }
  std::size_t count() const { return count_; }
  double mean_log_probability() const { return sum_ / static_cast<double>(count_); }
  /// exp(−mean log-probability): 1 for a text that was certain, vocab_size for one that was guessed.
  double value() const;

 private:
  double sum_ = 0;
  std::size_t count_ = 0;
};

/// How far the next-token distributions of a model, Q, are from those of the model it stands for, P.
class Divergence {
 public:
  /// The logits [vocab_size] of both at one position, all finite.
  void add(std::size_t position, std::span<const float> p, std::span<const float> q);

  std::size_t count() const { return count_; }  ///< positions
  /// KL(P‖Q) = Σ p·(log p − log q) over the vocabulary: 0 where both are the same.
  double mean() const { return sum_ / static_cast<double>(count_); }
  double largest() const { return largest_; }
  std::size_t largest_position() const { return largest_position_; }
  /// Positions where both find the same token most likely; ties go to the lowest id.
  std::size_t agreeing() const { return agreeing_; }

 private:
  double sum_ = 0, largest_ = -1;
  std::size_t count_ = 0, largest_position_ = 0, agreeing_ = 0;
};

}  // namespace fs::engine

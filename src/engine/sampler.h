#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace fs::engine {

/// How the next token is chosen. The filters apply in this order, each on what the one before left, with
/// probabilities renormalised: penalties → temperature → top-k → top-p → min-p → draw. Order and meaning are
/// those of Hugging Face's logits processors.
struct SamplerOptions {
  float temperature = 0;  ///< 0: greedy, the most likely token
  std::size_t top_k = 0;  ///< keep the k most likely; 0: all
  float top_p = 1;        ///< keep the smallest set whose probability reaches p; 0 keeps the best one
  float min_p = 0;        ///< keep tokens at least this share of the best one's probability
  float repetition_penalty =
      1;  ///< divides (positive) or multiplies (negative) logits of tokens seen (CTRL, 1909.05858)
  float presence_penalty = 0;  ///< subtracted from logits of tokens seen
  std::uint64_t seed = 0;

  bool operator==(const SamplerOptions&) const = default;
};

/// A token that was chosen.
struct Choice {
  TokenId id = 0;
  double log_probability = 0;  ///< by the model: log softmax of the logits before any filter
};

/// log softmax(logits)[id], summed in double.
double log_probability(std::span<const float> logits, TokenId id);
/// log Σ exp(logits), summed in double.
double log_sum_exp(std::span<const float> logits);

/// A token that survived the filters.
struct Candidate {
  TokenId id;
  double probability;  ///< of all candidates together: sums to 1
};

/// The random number in [0, 1) that decides at `position`: counter-based, the same on every backend. 53 bits
/// of splitmix64's output function on seed + (position + 1)·0x9E3779B97F4A7C15.
double draw(std::uint64_t seed, std::size_t position);

/// An option that is NaN, infinite or out of range.
struct SamplerFault {
  std::string_view flag;  ///< "--temp"
  float value;
  std::string_view expected;  ///< "a number from 0 to 1 (1 keeps all)"
};
/// The first one that is, if any.
std::optional<SamplerFault> find_fault(const SamplerOptions& options);

/// Chooses tokens. Holds no state between calls: the same arguments give the same token.
class Sampler {
 public:
  /// Only ids < n_ids are ever chosen (a padded vocabulary has more logits than the tokenizer has ids).
  /// Throws Error(usage) naming the flag if find_fault() finds one.
  Sampler(const SamplerOptions& options, std::size_t n_ids);

  /// The next token after `history`; the draw's position is history.size(). Ties go to the lowest id.
  /// logits: [≥ n_ids], finite. Throws Error(failed) if none of them is usable.
  TokenId pick(std::span<const float> logits, std::span<const TokenId> history) const;

  /// What pick() draws from, most likely first, ties by id. A single candidate when greedy.
  std::vector<Candidate> candidates(std::span<const float> logits, std::span<const TokenId> history) const;

  const SamplerOptions& options() const { return options_; }
  std::size_t n_ids() const { return n_ids_; }

  bool operator==(const Sampler&) const = default;

 private:
  SamplerOptions options_;
  std::size_t n_ids_;
};

}  // namespace fs::engine

#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace fs::engine {
namespace {

struct Entry {
  float logit;  // after penalties
  TokenId id;
  double weight;  // exp((logit - best) / temperature): its probability up to a common factor, 1 for the best
};

bool more_likely(const Entry& a, const Entry& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// Entries in the order of more_likely(), sorted no further than they are asked for: a peaked distribution
/// over 151,936 ids is decided by its first few. The order is total, so how far it is sorted changes no
/// result.
class Ranking {
 public:
  explicit Ranking(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  std::size_t size() const { return entries_.size(); }
  const Entry& operator[](std::size_t rank) {
    while (rank >= sorted_) sort_more();
    return entries_[rank];
  }

 private:
  void sort_more() {
    const std::size_t count = std::min(std::max<std::size_t>(64, 3 * sorted_), entries_.size() - sorted_);
    const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    const auto last = first + static_cast<std::ptrdiff_t>(count);
    std::nth_element(first, last - 1, entries_.end(), more_likely);
    std::sort(first, last, more_likely);
    sorted_ += count;
  }

  std::vector<Entry> entries_;
  std::size_t sorted_ = 0;
};

/// What the filters left: the first `kept` of the ranking, with the sum of their weights.
struct Survivors {
  Ranking ranking;
  std::size_t kept;
  double mass;
};

/// The logits of the ids that may be chosen, with the penalties: once for each id in `history`, repetition
/// first. Results are rounded to fp32 as RepetitionPenaltyLogitsProcessor's are, so that the same logits tie.
/// [n_ids]
std::vector<float> penalised(std::span<const float> logits, std::span<const TokenId> history,
                             const SamplerOptions& options, std::size_t n_ids) {
  if (logits.size() < n_ids) {
    fail(ExitCode::failed, "sampler at position {}: {} logits for {} token ids", history.size(),
         logits.size(), n_ids);
  }
  std::vector<float> result(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(n_ids));
  for (std::size_t id = 0; id < n_ids; ++id) {
    if (std::isfinite(result[id])) continue;
    fail(ExitCode::failed, "sampler at position {}: the logit of token {} is {}, expected a finite number",
         history.size(), id, result[id]);
  }
  const double repetition = options.repetition_penalty, presence = options.presence_penalty;
  if (repetition == 1 && presence == 0) return result;
  const auto round = [](double value) {  // an enormous penalty must not make an infinity
    constexpr double limit = std::numeric_limits<float>::max();
    return static_cast<float>(std::clamp(value, -limit, limit));
  };
  std::vector<bool> seen(n_ids);
  for (const TokenId id : history) {
    if (id >= n_ids || seen[id]) continue;
    seen[id] = true;
    const double logit = result[id];
    result[id] = round(round(logit < 0 ? logit * repetition : logit / repetition) - presence);
  }
  return result;
}

/// The smallest logit that top-k keeps: the k-th largest. Ties with it survive, as in TopKLogitsWarper.
float top_k_threshold(std::span<const float> logits, std::size_t k) {
  if (k <= 256) {  // a small heap of the best so far: one comparison for nearly every logit
    std::vector<float> best(k);
    std::partial_sort_copy(logits.begin(), logits.end(), best.begin(), best.end(), std::greater<>());
    return best.back();
  }
  std::vector<float> all(logits.begin(), logits.end());
  const auto kth = all.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(all.begin(), kth, all.end(), std::greater<>());
  return *kth;
}

/// Temperature, top-k, top-p and min-p. Each filter keeps a prefix of the ranking, so together they are one
/// length. Sums run in order of id (before ranking) or of rank, never in an order that the selection
/// algorithm left behind. `reach`: the caller reads ranks only until their weights pass this share of the
/// sum; 1 for all of them.
Survivors filter(std::span<const float> logits, const SamplerOptions& options, double reach) {
  const double best = *std::max_element(logits.begin(), logits.end()), temperature = options.temperature;
  const auto weight_of = [&](float logit) { return std::exp((logit - best) / temperature); };
  const bool top_k = options.top_k > 0 && options.top_k < logits.size();
  const bool top_p = options.top_p<1, min_p = options.min_p> 0;

  double lowest = top_k ? top_k_threshold(logits, options.top_k) : std::numeric_limits<float>::lowest();
  double mass = 0, count = 0;
  for (const float logit : logits) {
    if (logit < lowest) continue;
    mass += weight_of(logit);
    ++count;
  }

  // Min-p compares with the best token's probability, whose weight is 1. Tokens that together hold less than
  // half of what lies beyond `reach` are never read, so they need no rank either; the other half outweighs
  // all rounding.
  double least_weight = options.min_p;
  if (top_p) {
    reach = options.top_p;
  } else if (min_p) {
    reach = 1;  // its share is of what min-p leaves
  }
  if (reach < 0.999999) least_weight = std::max(least_weight, (1 - reach) / 2 * mass / count);

  // Few logits are near the least weight, so nearly all are settled without another exp().
  lowest = std::max(lowest, best + temperature * (std::log(least_weight) - 1e-6));
  std::vector<Entry> entries;
  double left = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] < lowest) continue;
    const double weight = weight_of(logits[id]);
    if (weight < least_weight) continue;
    entries.push_back({logits[id], static_cast<TokenId>(id), weight});
    left += weight;
  }

  Survivors survivors{Ranking(std::move(entries)), 0, min_p ? left : mass};
  survivors.kept = survivors.ranking.size();
  if (!top_p) return survivors;
  // A token is in the smallest set that reaches p exactly while those before it have not reached it: the rule
  // of TopPLogitsWarper, read from the likely end. The best token always stays.
  const double enough = reach * mass;
  double kept_mass = survivors.ranking[0].weight;
  std::size_t kept = 1;
  for (; kept < survivors.kept && kept_mass < enough; ++kept) kept_mass += survivors.ranking[kept].weight;
  survivors.kept = kept;
  survivors.mass = kept_mass;
  return survivors;
}

TokenId argmax(const std::vector<float>& logits) {  // max_element returns the first: the lowest id
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  return best + std::log(sum);
}

double log_probability(std::span<const float> logits, TokenId id) { return logits[id] - log_sum_exp(logits); }

double draw(std::uint64_t seed, std::size_t position) {
  std::uint64_t z = seed + (static_cast<std::uint64_t>(position) + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

std::optional<SamplerFault> find_fault(const SamplerOptions& options) {
  const auto within = [](float value, float low, float high) {
    return value >= low && value <= high;
  };  // no NaN
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    return SamplerFault{"--temp", options.temperature, "a finite number of at least 0 (0 is greedy)"};
  if (!within(options.top_p, 0, 1))
    return SamplerFault{"--topp", options.top_p, "a number from 0 to 1 (1 keeps all)"};
  if (!within(options.min_p, 0, 1))
    return SamplerFault{"--minp", options.min_p, "a number from 0 to 1 (0 keeps all)"};
  if (!std::isfinite(options.repetition_penalty) || options.repetition_penalty <= 0) {
    return SamplerFault{"--repeat-penalty", options.repetition_penalty,
                        "a finite number above 0 (1 changes nothing)"};
  }
  if (!within(options.presence_penalty, -2, 2)) {
    return SamplerFault{"--presence-penalty", options.presence_penalty,
                        "a number from -2 to 2 (0 changes nothing)"};
  }
  return std::nullopt;
}

Sampler::Sampler(const SamplerOptions& options, std::size_t n_ids) : options_(options), n_ids_(n_ids) {
  if (const auto fault = find_fault(options)) {
    fail(ExitCode::usage, "{} is {}: expected {}", fault->flag, fault->value, fault->expected);
  }
  if (n_ids == 0) fail(ExitCode::unusable, "the tokenizer has no ids: there is nothing to sample");
}

TokenId Sampler::pick(std::span<const float> logits, std::span<const TokenId> history) const {
  const std::vector<float> scores = penalised(logits, history, options_, n_ids_);
  if (options_.temperature == 0) return argmax(scores);
  const double random = draw(options_.seed, history.size());
  Survivors left = filter(scores, options_, random);
  double cumulative = 0;
  TokenId chosen = left.ranking[0].id;
  for (std::size_t rank = 0; rank < left.kept && cumulative <= random * left.mass; ++rank) {
    const Entry& entry = left.ranking[rank];
    if (entry.weight == 0)
      break;  // the sum fell short by a rounding: the last token that can be drawn is meant
    cumulative += entry.weight;
    chosen = entry.id;
  }
  return chosen;
}

std::vector<Candidate> Sampler::candidates(std::span<const float> logits,
                                           std::span<const TokenId> history) const {
  const std::vector<float> scores = penalised(logits, history, options_, n_ids_);
  if (options_.temperature == 0) return {{argmax(scores), 1.0}};
  Survivors left = filter(scores, options_, 1);
  std::vector<Candidate> result;
  result.reserve(left.kept);
  for (std::size_t rank = 0; rank < left.kept; ++rank) {
    const Entry& entry = left.ranking[rank];
    result.push_back({entry.id, entry.weight / left.mass});
  }
  return result;
}

}  // namespace fs::engine

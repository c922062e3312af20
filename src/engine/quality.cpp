#include "engine/quality.h"

#include <algorithm>
#include <cmath>

#include "engine/sampler.h"

namespace fs::engine {

double Perplexity::value() const { return std::exp(-mean_log_probability()); }

void Divergence::add(std::size_t position, std::span<const float> p, std::span<const float> q) {
  const double all_p = log_sum_exp(p), all_q = log_sum_exp(q);
  double divergence = 0;
  for (std::size_t id = 0; id < p.size(); ++id) {
    const double log_p = p[id] - all_p, log_q = q[id] - all_q;
    divergence += std::exp(log_p) * (log_p - log_q);
  }
  divergence = std::max(divergence, 0.0);  // it is no less; rounding may make it so
  sum_ += divergence;
  if (divergence > largest_) {
    largest_ = divergence;
    largest_position_ = position;
  }
  agreeing_ +=
      std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin();
  ++count_;
}

}  // namespace fs::engine

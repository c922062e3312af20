#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/workload.h"
#include "engine/backend.h"
#include "engine/batch.h"
#include "engine/session.h"

namespace fs::bench {

struct TimingOptions {
  std::size_t repetitions = 5;  ///< ≥ 1
  bool warm_up = true;          ///< a run before the first that counts
  /// Called between forward calls with the tokens done and to do; may throw to stop.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

/// A backend's timeline on which workloads are timed, one behind another: what lies before a workload's depth
/// is computed once. Or several side by side, for workloads of several sequences.
class Timeline {
 public:
  /// `context`: the largest positions() of the workloads. The backend must outlive it. Throws Error(usage).
  Timeline(const engine::Backend& backend, std::size_t context);

  /// Seconds of each repetition: the forward calls alone. Tokens are random, the same in every run of the
  /// program. Throws Error(failed) if a logit outside the timed calls is not finite.
  std::vector<double> measure(const Workload& workload, const TimingOptions& options);
  /// Each kernel of the first step behind a decode workload's depth, after measure() has been there.
  std::vector<engine::KernelTime> time_kernels(const Workload& workload, std::size_t repetitions);

 private:
  double run(const Workload& workload, std::size_t tokens, bool require_finite,
             const std::function<void(std::size_t done)>& progress);
  /// Decodes `tokens` of each sequence, all at once.
  double run_together(const Workload& workload, std::size_t tokens, bool require_finite,
                      const std::function<void(std::size_t done)>& progress);
  std::vector<TokenId> random_tokens(std::size_t count);

  const engine::Backend& backend_;
  std::size_t context_;
  std::vector<engine::Session> sessions_;  // as many as a workload had sequences
  std::size_t vocab_size_;
  std::uint64_t random_ = 0;
};

}  // namespace fs::bench

#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "engine/backend.h"

namespace fs::engine {

/// How a Session feeds tokens to its backend.
struct ForwardOptions {
  std::size_t chunk = 0;  ///< tokens a forward call at most; 0: as the backend prefers
  TapObserver* taps = nullptr;
  /// If set, the head runs on every row and each row is handed over in order of position.
  std::function<void(std::size_t position, std::span<const float> logits)> on_logits;
  bool require_finite = true;  ///< off for layer-diff, which reports what is not finite itself
  Progress progress;           ///< called before each chunk with stage "prefill"; may throw to stop
};

/// What next() may choose before it is asked.
struct Lookahead {
  std::size_t wanted = 1;             ///< tokens that the caller will ask for at most, this one included
  std::span<const TokenId> stop_ids;  ///< it asks for none after these
};

/// One timeline of one backend: the tokens so far, their keys and values, the position. The backend must
/// outlive it.
class Session {
 public:
  /// Throws Error(usage) if context is 0 or beyond the model's limit.
  Session(const Backend& backend, std::size_t context);

  std::size_t position() const { return tokens_.size(); }  ///< tokens seen so far
  std::size_t context() const { return context_; }
  std::span<const TokenId> tokens() const { return tokens_; }

  /// Appends tokens and returns the logits [vocab_size] that follow the last one, valid until the next call.
  /// Any chunking gives the same values within tolerance. Throws Error(usage) on an empty call, an id ≥
  /// vocab_size or a full context; Error(failed) naming the position if a logit is not finite. After an
  /// exception (an interrupt from `progress` included) the session stands where its last whole chunk left it.
  std::span<const float> forward(std::span<const TokenId> tokens, const ForwardOptions& options = {});

  /// Appends tokens and chooses the one that follows, with forward() and the sampler. Where the backend can
  /// sample, it runs some steps ahead on its own choices, which later calls then find ready: the tokens are
  /// the same. Throws as both do.
  Choice next(std::span<const TokenId> tokens, const Sampler& sampler, const Lookahead& lookahead,
              const ForwardOptions& options = {});

  /// Times each kernel of the step that comes next, for benchmarks (Backend::time_kernels()); the session
  /// stays as it is. Throws Error(usage) if the context is full.
  std::vector<KernelTime> time_kernels(std::size_t repetitions);

  /// Forgets everything from `position` on; the next forward() continues there. Throws Error(usage) beyond
  /// position().
  void rewind(std::size_t position);

 private:
  friend class Batch;
  /// Throws Error(usage) unless tokens can follow.
  void check(std::span<const TokenId> tokens) const;
  /// Their keys and values are in the cache.
  void append(std::span<const TokenId> tokens);

  const Backend& backend_;
  std::size_t context_;
  std::unique_ptr<KvCache> cache_;
  std::vector<TokenId> tokens_;
  std::vector<float> logits_;
  std::uint64_t runs_ = 0;

  /// Chosen ahead: choices[used], … follow `token`, the token chosen last, whose keys and values are in the
  /// cache already.
  struct Ahead {
    std::vector<Choice> choices;
    std::size_t used = 0;
    TokenId token = 0;
    std::optional<Sampler> sampler;
  } ahead_;
};

/// Throws Error(failed) naming the position if a logit is not finite.
void check_finite(std::span<const float> logits, std::size_t position);

/// Throws Error(usage), naming both numbers, if `context` is not 1..config.max_positions. Called before
/// weights load.
void check_context(std::size_t context, const model::Config& config);

}  // namespace fs::engine

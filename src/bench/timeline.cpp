#include "bench/timeline.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "engine/sampler.h"

namespace fs::bench {

using Clock = std::chrono::steady_clock;

Timeline::Timeline(const engine::Backend& backend, std::size_t context)
    : session_(backend, context), vocab_size_(backend.config().vocab_size) {}

std::vector<double> Timeline::measure(const Workload& workload, const TimingOptions& options) {
  // Decoding warms up on a few tokens, a prompt as a whole: scratch memory has its final size then.
  constexpr std::size_t warm_up_tokens = 8;
  const std::size_t warm_up = !options.warm_up ? 0
                              : workload.kind == Workload::Kind::prefill
                                  ? workload.tokens
                                  : std::min(workload.tokens, warm_up_tokens);
  const std::size_t before = workload.depth - std::min(workload.depth, session_.position());
  const std::size_t total = before + warm_up + options.repetitions * workload.tokens;
  std::size_t done = 0;
  const auto report = [&](std::size_t here) {
    if (options.progress) options.progress(done + here, total);
  };

  if (before > 0) {
    engine::ForwardOptions forward;
    forward.progress = [&](std::string_view, std::uint64_t here, std::uint64_t) { report(here); };
    session_.forward(random_tokens(before), forward);
    done += before;
  }
  if (warm_up > 0) {
    run(workload, warm_up, true, report);
    done += warm_up;
  }
  std::vector<double> seconds;
  for (std::size_t i = 0; i < options.repetitions; ++i) {
    seconds.push_back(run(workload, workload.tokens, false, report));
    done += workload.tokens;
  }
  return seconds;
}

double Timeline::run(const Workload& workload, std::size_t tokens, bool require_finite,
                     const std::function<void(std::size_t done)>& progress) {
  session_.rewind(workload.depth);
  const std::vector<TokenId> ids = random_tokens(tokens);
  const std::size_t step = workload.kind == Workload::Kind::prefill ? tokens : 1;
  engine::ForwardOptions forward;
  forward.require_finite = require_finite;
  if (step > 1)
    forward.progress = [&](std::string_view, std::uint64_t done, std::uint64_t) { progress(done); };
  Clock::duration timed{};
  for (std::size_t done = 0; done < tokens; done += step) {
    progress(done);
    const auto begin = Clock::now();
    session_.forward(std::span(ids).subspan(done, step), forward);
    timed += Clock::now() - begin;
  }
  return std::chrono::duration<double>(timed).count();
}

std::vector<TokenId> Timeline::random_tokens(std::size_t count) {
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) {
    id = static_cast<TokenId>(engine::draw(0, random_++) * static_cast<double>(vocab_size_));
  }
  return ids;
}

}  // namespace fs::bench

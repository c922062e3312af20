#include "bench/timeline.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "engine/sampler.h"

namespace fs::bench {

using Clock = std::chrono::steady_clock;

Timeline::Timeline(const engine::Backend& backend, std::size_t context)
    : backend_(backend), context_(context), vocab_size_(backend.config().vocab_size) {
  sessions_.emplace_back(backend, context);
}

std::vector<double> Timeline::measure(const Workload& workload, const TimingOptions& options) {
  // Decoding warms up on a few tokens, a prompt as a whole: scratch memory has its final size then.
  constexpr std::size_t warm_up_tokens = 8;
  const std::size_t warm_up = !options.warm_up ? 0
                              : workload.kind == Workload::Kind::prefill
                                  ? workload.tokens
                                  : std::min(workload.tokens, warm_up_tokens);
  while (sessions_.size() < workload.sequences) sessions_.emplace_back(backend_, context_);
  const auto missing = [&](const engine::Session& session) {
    return workload.depth - std::min(workload.depth, session.position());
  };
  const auto sessions = std::span(sessions_).first(workload.sequences);
  std::size_t total = (warm_up + options.repetitions * workload.tokens) * workload.sequences;
  for (const engine::Session& session : sessions) total += missing(session);
  std::size_t done = 0;
  const auto report = [&](std::size_t here) {
    if (options.progress) options.progress(done + here, total);
  };

  for (engine::Session& session : sessions) {
    const std::size_t before = missing(session);
    if (before == 0) continue;
    engine::ForwardOptions forward;
    forward.progress = [&](std::string_view, std::uint64_t here, std::uint64_t) { report(here); };
    session.forward(random_tokens(before), forward);
    done += before;
  }
  const auto repeat = [&](std::size_t tokens, bool require_finite) {
    const double seconds = workload.sequences == 1 ? run(workload, tokens, require_finite, report)
                                                   : run_together(workload, tokens, require_finite, report);
    done += tokens * workload.sequences;
    return seconds;
  };
  if (warm_up > 0) repeat(warm_up, true);
  std::vector<double> seconds;
  for (std::size_t i = 0; i < options.repetitions; ++i) seconds.push_back(repeat(workload.tokens, false));
  return seconds;
}

std::vector<engine::KernelTime> Timeline::time_kernels(const Workload& workload, std::size_t repetitions) {
  sessions_.front().rewind(workload.depth);
  return sessions_.front().time_kernels(repetitions);
}

double Timeline::run(const Workload& workload, std::size_t tokens, bool require_finite,
                     const std::function<void(std::size_t done)>& progress) {
  engine::Session& session = sessions_.front();
  session.rewind(workload.depth);
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
    session.forward(std::span(ids).subspan(done, step), forward);
    timed += Clock::now() - begin;
  }
  return std::chrono::duration<double>(timed).count();
}

double Timeline::run_together(const Workload& workload, std::size_t tokens, bool require_finite,
                              const std::function<void(std::size_t done)>& progress) {
  const std::size_t sequences = workload.sequences;
  const std::vector<TokenId> ids = random_tokens(tokens * sequences);
  for (std::size_t i = 0; i < sequences; ++i) sessions_[i].rewind(workload.depth);
  engine::Batch batch(backend_);
  Clock::duration timed{};
  for (std::size_t done = 0; done < tokens; ++done) {
    progress(done * sequences);
    std::vector<engine::Turn> turns;
    for (std::size_t i = 0; i < sequences; ++i) {
      turns.push_back({sessions_[i], std::span(ids).subspan(done * sequences + i, 1)});
    }
    const auto begin = Clock::now();
    batch.forward(turns);
    timed += Clock::now() - begin;
    for (std::size_t i = 0; require_finite && i < sequences; ++i) batch.logits(i, 0);
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

#include "cli/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/terminal.h"
#include "engine/sampler.h"
#include "engine/session.h"

namespace fs::cli {
namespace {

/// Taps that a comparison of a run with itself holds at a time.
constexpr std::size_t most_recorded_bytes = std::size_t{512} << 20;

/// fp32 values of one token at the points of one layer.
std::size_t layer_values(const model::Config& c) {
  return 4 * c.hidden + 2 * c.q_width() + 2 * c.kv_width() + c.intermediate;
}

}  // namespace

engine::DiffObserver::Options Comparison::observer(const std::string& where) {
  engine::DiffObserver::Options observer;
  observer.wants = [this](engine::TapPoint point, std::size_t layer) {
    throw_if_interrupted();
    return options_.taps.contains(point, layer);
  };
  observer.tolerance = options_.tolerance;
  observer.keep = options_.keep;
  observer.inject = options_.inject;
  observer.report = [this, where](const engine::TapDiff& diff) { report_.add(diff, where); };
  observer.record_a = options_.record_a;
  return observer;
}

void Comparison::two_running(const Sides& sides, const std::vector<TokenId>& tokens, std::size_t decode,
                             const std::string& where) {
  const auto &a = sides.a, &b = sides.b;
  engine::Session session_a(*a.backend, a.model->context), session_b(*b.backend, b.model->context);
  const std::size_t chunk = std::min(a.backend->preferred_chunk(), b.backend->preferred_chunk());
  auto logits = engine::diff_forward(session_a, session_b, tokens, chunk, observer(where), progress_);
  const engine::Sampler greedy({}, a.model->n_ids());
  for (std::size_t step = 1; step <= decode; ++step) {
    const TokenId next = greedy.pick(logits.a, session_a.tokens());
    const std::string name = fmt::format("{}{}step {}", where, where.empty() ? "" : " ", step);
    logits = engine::diff_forward(session_a, session_b, std::span(&next, 1), 1, observer(name));
  }
  const std::size_t n_ids = a.model->n_ids();
  if (n_ids >= 2 && !options_.inject) {  // B's injected logits are A's
    next_token_ = compare_next_token(logits.a.first(n_ids), logits.b.first(n_ids), options_.tolerance);
  }
}

engine::Recording Comparison::record(const Side& side, const std::vector<TokenId>& tokens,
                                     const engine::TapChoice& taps) {
  engine::Recorder recorder(taps);
  engine::ForwardOptions forward;
  forward.taps = &recorder;
  forward.require_finite = false;
  forward.progress = progress_;
  engine::Session(*side.backend, side.model->context).forward(tokens, forward);
  return std::move(recorder.recording());
}

void Comparison::run_against(engine::TapSource& a, const Side& b, const std::vector<TokenId>& tokens,
                             std::size_t chunk, engine::DiffObserver::Options options) {
  engine::DiffObserver taps(a, std::move(options));
  engine::ForwardOptions forward;
  forward.taps = &taps;
  forward.chunk = chunk;
  forward.require_finite = false;
  forward.progress = progress_;
  engine::Session(*b.backend, b.model->context).forward(tokens, forward);
  not_compared_ += taps.unmatched();
}

void Comparison::compare(Sides& sides, const std::vector<TokenId>& tokens, std::size_t decode,
                         const std::string& where) {
  Side &a = sides.a, &b = sides.b;
  if (!a.recorded() && !b.recorded()) {
    two_running(sides, tokens, decode, where);
  } else if (!b.recorded()) {
    run_against(*a.recording, b, tokens, 0, observer(where));
  } else {
    if (!a.recorded()) a.recording = record(a, tokens, options_.taps);
    engine::DiffObserver taps(*a.recording, observer(where));
    b.recording->replay(taps);
    not_compared_ += taps.unmatched();
  }
}

void Comparison::compare_with_itself(const Side& b, const std::vector<TokenId>& tokens,
                                     const std::string& where) {
  const model::Config& config = b.model->checkpoint.config();
  const std::size_t bytes = layer_values(config) * tokens.size() * sizeof(float);
  const std::size_t layers = std::clamp<std::size_t>(most_recorded_bytes / bytes, 1, config.n_layers);
  for (std::size_t first = 0; first < config.n_layers; first += layers) {
    engine::TapChoice part{{}, std::set<std::size_t>{}};
    for (const engine::TapPoint point : options_.taps.points) {
      // What belongs to no layer goes with the first part.
      if (per_layer(point) || first == 0) part.points.insert(point);
    }
    for (std::size_t layer = first; layer < std::min(first + layers, config.n_layers); ++layer) {
      if (!options_.taps.layers || options_.taps.layers->contains(layer)) part.layers->insert(layer);
    }
    engine::Recording whole = record(b, tokens, part);
    auto options = observer(where);
    options.wants = [&](engine::TapPoint point, std::size_t layer) {
      throw_if_interrupted();
      return part.contains(point, layer);
    };
    run_against(whole, b, tokens, 1, std::move(options));
  }
}

}  // namespace fs::cli

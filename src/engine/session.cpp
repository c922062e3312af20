#include "engine/session.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace fs::engine {

void check_finite(std::span<const float> logits, std::size_t position) {
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float value) { return !std::isfinite(value); });
  if (bad == logits.end()) return;
  fail(ExitCode::failed, "position {}: the logit of token {} is {}; weights or activations are not finite",
       position, bad - logits.begin(), *bad);
}

void check_context(std::size_t context, const model::Config& config) {
  if (context == 0 || context > config.max_positions) {
    fail(ExitCode::usage, "a context of {} tokens: this model takes 1 to {}", context, config.max_positions);
  }
}

Session::Session(const Backend& backend, std::size_t context) : backend_(backend), context_(context) {
  check_context(context, backend.config());
  cache_ = backend.make_cache(context);
}

Choice Session::next(std::span<const TokenId> tokens, const Sampler& sampler, const Lookahead& lookahead,
                     const ForwardOptions& options) {
  constexpr std::size_t most_ahead = 16;  // bounds what a stop throws away, and how long Ctrl-C waits
  const model::Config& config = backend_.config();
  const bool alone = tokens.size() == 1 && tokens[0] < config.vocab_size && !options.on_logits &&
                     !watches(options.taps, config.n_layers);
  const auto ready = [&] {
    return ahead_.used < ahead_.choices.size() && ahead_.token == tokens[0] && ahead_.sampler == sampler;
  };
  if (alone && position() < context_ && !ready()) {
    ahead_.choices.resize(std::min({lookahead.wanted, most_ahead, context_ - position()}));
    ahead_.used = 0;
    ahead_.token = tokens[0];
    ahead_.sampler = sampler;
    if (!ahead_.choices.empty()) {
      ahead_.choices.resize(backend_.continue_with(
          *cache_, {tokens[0], position(), sampler, lookahead.stop_ids, ahead_.choices}));
    }
  }
  if (alone && ready()) {
    tokens_.push_back(tokens[0]);
    const Choice choice = ahead_.choices[ahead_.used++];
    ahead_.token = choice.id;
    return choice;
  }
  const auto logits = forward(tokens, options);
  const TokenId id = sampler.pick(logits, tokens_);
  return {id, log_probability(logits, id)};
}

void Session::check(std::span<const TokenId> tokens) const {
  const std::size_t vocab_size = backend_.config().vocab_size;
  if (tokens.empty()) fail(ExitCode::usage, "no tokens to run: the prompt is empty");
  if (tokens.size() > context_ - position()) {
    fail(ExitCode::usage,
         "the context is full: {} tokens after {} do not fit into {}; raise --ctx or shorten the prompt",
         tokens.size(), position(), context_);
  }
  for (const TokenId token : tokens) {
    if (token >= vocab_size) fail(ExitCode::usage, "token id {}: this model has {} ids", token, vocab_size);
  }
}

void Session::append(std::span<const TokenId> tokens) {
  ahead_.choices.clear();
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

std::span<const float> Session::forward(std::span<const TokenId> tokens, const ForwardOptions& options) {
  ahead_.choices.clear();
  check(tokens);
  const std::size_t vocab_size = backend_.config().vocab_size;
  const std::size_t chunk = options.chunk == 0 ? backend_.preferred_chunk() : options.chunk;
  for (std::size_t done = 0; done < tokens.size();) {
    if (options.progress) options.progress("prefill", done, tokens.size());
    const std::size_t rows = std::min(chunk, tokens.size() - done);
    Pass pass;
    pass.tokens = tokens.subspan(done, rows);
    pass.first_position = position();
    pass.run = runs_++;
    pass.taps = options.taps;
    pass.logit_rows = options.on_logits              ? LogitRows::all
                      : done + rows == tokens.size() ? LogitRows::last
                                                     : LogitRows::none;
    const std::size_t head_rows =
        pass.logit_rows == LogitRows::all ? rows : pass.logit_rows == LogitRows::last;
    logits_.resize(head_rows * vocab_size);
    pass.logits = logits_;
    backend_.forward(*cache_, pass);

    for (std::size_t row = 0; row < head_rows; ++row) {
      const std::size_t at = pass.first_position + rows - head_rows + row;
      const auto logits = std::span(logits_).subspan(row * vocab_size, vocab_size);
      if (options.require_finite) check_finite(logits, at);
      if (options.on_logits) options.on_logits(at, logits);
    }
    append(pass.tokens);
    done += rows;
  }
  return std::span(logits_).last(vocab_size);
}

std::vector<KernelTime> Session::time_kernels(std::size_t repetitions) {
  check(std::vector<TokenId>{0});
  ahead_.choices.clear();
  return backend_.time_kernels(*cache_, position(), repetitions);
}

void Session::rewind(std::size_t position) {
  if (position > tokens_.size()) {
    fail(ExitCode::usage, "cannot rewind to position {}: the session stands at {}", position, tokens_.size());
  }
  tokens_.resize(position);
  ahead_.choices.clear();
}

}  // namespace fs::engine

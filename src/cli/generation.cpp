#include "cli/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <list>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/interruptible.h"
#include "cli/stop_texts.h"
#include "engine/batch.h"
#include "engine/prompt_lookup.h"
#include "engine/session.h"
#include "text/utf8.h"

namespace fs::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Turns chosen tokens into text that is certain to stay: whole characters, in front of any stop text.
class TextStream {
 public:
  TextStream(const text::Tokenizer* tokenizer, const GenerationRequest& request,
             const std::function<void(std::string_view)>& on_text, Generation& result)
      : tokenizer_(tokenizer), stops_(request.stops), on_text_(on_text), result_(result) {}

  /// True if the stream has reached a stop text.
  bool push(TokenId id) {
    if (tokenizer_ == nullptr) {
      emit(stops_.push(fmt::format("{}{}", result_.ids.size() > 1 ? " " : "", id)));
    } else if (!tokenizer_->is_special(id)) {
      emit(stops_.push(characters_.push(tokenizer_->bytes(id))));
    }
    return stops_.found().has_value();
  }

  void finish() {
    if (!stops_.found()) emit(stops_.push(characters_.finish()));
    emit(stops_.finish());
    if (stops_.found()) {
      result_.reason = StopReason::stop;
      result_.stop_text = *stops_.found();
    }
  }

 private:
  void emit(const std::string& text) {
    if (text.empty()) return;
    result_.text += text;
    on_text_(text);
  }

  const text::Tokenizer* tokenizer_;
  text::Utf8Stream characters_;
  StopTexts stops_;
  const std::function<void(std::string_view)>& on_text_;
  Generation& result_;
};

/// One answer in the making.
class Answer {
 public:
  Answer(const engine::Backend& backend, const text::Tokenizer* tokenizer, std::size_t n_ids,
         const GenerationRequest& request, const GenerationPlan& plan, const GenerationEvents& events)
      : request_(request),
        sampler_(request.sampler, n_ids),
        stream_(tokenizer, request, events.on_text, result_),
        context_(plan.context),
        history_(request.prompt),
        next_(request.prompt) {
    session_.emplace(backend, context_);
    check_room();
  }

  const GenerationRequest& request() const { return request_; }
  const Generation& result() const { return result_; }
  bool ended() const { return !session_; }

  /// The tokens to run next: the one chosen last and, if wanted, guesses of what follows it.
  engine::Turn turn(std::size_t most_guesses) {
    next_ = {history_.back()};
    const auto guesses = engine::look_up(history_, std::min(most_guesses, room() - 1));
    next_.insert(next_.end(), guesses.begin(), guesses.end());
    result_.proposed += guesses.size();
    return {*session_, next_};
  }
  const engine::Sampler& sampler() const { return sampler_; }
  void take(std::span<const engine::Choice> choices) {
    std::size_t taken = 0;
    for (const engine::Choice& choice : choices) {
      if (ended()) break;
      push(choice);
      ++taken;
    }
    result_.accepted += taken - 1;
  }

  /// The prompt, or one decode step, by itself.
  void step_alone(engine::TapObserver& taps, const Progress& progress) {
    engine::ForwardOptions forward;
    forward.taps = &taps;
    if (result_.ids.empty()) forward.progress = progress;
    push(session_->next(next_, sampler_, {room(), request_.eos_ids}, forward));
    next_ = {history_.back()};
  }

  void end(StopReason reason) {
    result_.reason = reason;
    stream_.finish();
    result_.seconds = seconds_since(begin_);
    session_.reset();
  }

 private:
  void push(const engine::Choice& choice) {
    if (result_.ids.empty()) result_.first_token_seconds = seconds_since(begin_);
    history_.push_back(choice.id);
    result_.ids.push_back(choice.id);
    result_.logprobs.push_back(choice.log_probability);
    const auto& eos = request_.eos_ids;
    if (std::find(eos.begin(), eos.end(), choice.id) != eos.end()) {
      end(StopReason::eos);
    } else if (stream_.push(choice.id)) {
      end(StopReason::stop);
    } else {
      check_room();
    }
  }
  /// Tokens that may still be chosen.
  std::size_t room() const {
    const std::size_t left = context_ - history_.size();
    return request_.max_tokens ? std::min(*request_.max_tokens - result_.ids.size(), left) : left;
  }
  void check_room() {
    if (request_.max_tokens && result_.ids.size() >= *request_.max_tokens) {
      end(StopReason::length);
    } else if (history_.size() >= context_) {
      end(StopReason::context);
    }
  }

  const GenerationRequest& request_;
  const engine::Sampler sampler_;
  Generation result_;
  TextStream stream_;
  std::size_t context_;
  std::optional<engine::Session> session_;  // until the end: its memory is the next one's
  std::vector<TokenId> history_;            // the prompt and all that was chosen
  std::vector<TokenId> next_;               // not in the session yet
  Clock::time_point begin_ = Clock::now();
};

/// One pass over all: together where several are running or there are guesses.
void take_turns(const std::vector<Answer*>& running, std::size_t most_guesses, engine::Batch& batch,
                ThreadPool& pool, engine::TapObserver& taps) {
  std::vector<engine::Turn> turns;
  std::size_t rows = 0;
  for (Answer* const answer : running) {
    turns.push_back(answer->turn(most_guesses));
    rows += turns.back().tokens.size();
  }
  if (rows == 1) return running.front()->step_alone(taps, {});
  batch.forward(turns);
  // A choice among 150,000 ids takes a millisecond or so.
  std::vector<std::vector<engine::Choice>> chosen(running.size());
  pool.for_ranges(running.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) chosen[i] = batch.choose(i, running[i]->sampler());
  });
  for (std::size_t i = 0; i < running.size(); ++i) running[i]->take(chosen[i]);
}

}  // namespace

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::eos:
      return "eos";
    case StopReason::stop:
      return "stop";
    case StopReason::length:
      return "length";
    case StopReason::context:
      return "context";
    case StopReason::interrupted:
      return "interrupted";
  }
  return "";
}

std::optional<double> Generation::tokens_per_second() const {
  if (ids.size() < 2 || seconds <= first_token_seconds) return std::nullopt;
  return static_cast<double>(ids.size() - 1) / (seconds - first_token_seconds);
}

void generate(const engine::Backend& backend, const text::Tokenizer* tokenizer, std::size_t n_ids,
              std::span<const GenerationRequest> requests, const GenerationPlan& plan,
              const GenerationEvents& events) {
  InterruptibleTaps interruptible;
  engine::Batch batch(backend);
  ThreadPool pool(std::min({plan.threads, plan.parallel, requests.size()}));
  std::list<Answer> answers;  // begun and not handed over
  const auto hand_over = [&] {
    for (; !answers.empty() && answers.front().ended(); answers.pop_front()) {
      events.on_done(answers.front().request(), answers.front().result());
    }
  };
  const auto running = [&] {
    std::vector<Answer*> found;
    for (Answer& answer : answers) {
      if (!answer.ended()) found.push_back(&answer);
    }
    return found;
  };
  try {
    for (std::size_t begun = 0;;) {
      while (begun < requests.size() && running().size() < plan.parallel) {
        Answer& answer = answers.emplace_back(backend, tokenizer, n_ids, requests[begun++], plan, events);
        if (!answer.ended()) answer.step_alone(interruptible, events.progress);
        hand_over();
      }
      const auto now = running();
      if (now.empty()) return;
      throw_if_interrupted();
      // Guesses take the rows that sequences leave of what a pass takes at little more than the price of one.
      const std::size_t rows = backend.preferred_steps() / now.size();
      take_turns(now, plan.speculate && rows > 1 ? rows - 1 : 0, batch, pool, interruptible);
      hand_over();
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::interrupted) throw;
    for (Answer* const answer : running()) answer->end(StopReason::interrupted);
    hand_over();
  }
}

}  // namespace fs::cli

#include "cli/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "cli/interruptible.h"
#include "cli/stop_texts.h"
#include "engine/quality.h"
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

Generation generate(engine::Session& session, const text::Tokenizer* tokenizer, std::size_t n_ids,
                    const GenerationRequest& request, const std::function<void(std::string_view)>& on_text,
                    const Progress& progress) {
  const engine::Sampler sampler(request.sampler, n_ids);
  InterruptibleTaps interruptible;
  Generation result;
  TextStream stream(tokenizer, request, on_text, result);
  const auto ends = [&](TokenId id) {
    return std::find(request.eos_ids.begin(), request.eos_ids.end(), id) != request.eos_ids.end();
  };
  const auto is_full = [&] { return request.prompt.size() + result.ids.size() >= session.context(); };

  const auto begin = Clock::now();
  try {
    std::vector<TokenId> next = request.prompt;
    engine::ForwardOptions forward;
    forward.taps = &interruptible;
    forward.progress = progress;
    for (;;) {
      if (request.max_tokens && result.ids.size() >= *request.max_tokens) {
        result.reason = StopReason::length;
        break;
      }
      if (is_full()) {
        result.reason = StopReason::context;
        break;
      }
      const std::size_t room = session.context() - request.prompt.size() - result.ids.size();
      const std::size_t wanted = request.max_tokens ? *request.max_tokens - result.ids.size() : room;
      const auto [id, log_probability] =
          session.next(next, sampler, {std::min(wanted, room), request.eos_ids}, forward);
      if (result.ids.empty()) result.first_token_seconds = seconds_since(begin);
      result.ids.push_back(id);
      result.logprobs.push_back(log_probability);
      if (ends(id)) {
        result.reason = StopReason::eos;
        break;
      }
      if (stream.push(id)) break;
      throw_if_interrupted();
      next = {id};
      forward.progress = {};
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::interrupted) throw;
    result.reason = StopReason::interrupted;
  }
  stream.finish();
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace fs::cli

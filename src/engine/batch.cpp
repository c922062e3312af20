#include "engine/batch.h"

namespace fs::engine {

void Batch::forward(std::span<const Turn> turns) {
  std::vector<Step> steps;
  std::vector<Ran> ran;
  for (const auto& [session, tokens] : turns) {
    session.check(tokens);
    ran.push_back({session, steps.size(), tokens.size(), session.position()});
    for (const TokenId token : tokens) {
      steps.push_back({*session.cache_, token, session.position() + steps.size() - ran.back().first_row});
    }
  }
  ran_ = std::move(ran);
  logits_.resize(steps.size() * backend_.config().vocab_size);
  backend_.run_steps(steps, logits_);
  for (const auto& [session, tokens] : turns) session.append(tokens);
}

std::span<const float> Batch::logits(std::size_t turn, std::size_t row) const {
  const std::size_t vocab_size = backend_.config().vocab_size;
  const auto values = std::span(logits_).subspan((ran_[turn].first_row + row) * vocab_size, vocab_size);
  check_finite(values, ran_[turn].first_position + row);
  return values;
}

std::vector<Choice> Batch::choose(std::size_t turn, const Sampler& sampler) {
  const auto [session, first_row, rows, first_position] = ran_[turn];
  std::vector<Choice> choices;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto tokens = session.tokens();
    if (row > 0 && tokens[first_position + row] != choices.back().id) break;
    const auto values = logits(turn, row);
    const TokenId id = sampler.pick(values, tokens.first(first_position + row + 1));
    choices.push_back({id, log_probability(values, id)});
  }
  session.rewind(first_position + choices.size());
  return choices;
}

}  // namespace fs::engine

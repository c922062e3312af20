#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "base/atomic_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/generation.h"
#include "cli/input.h"
#include "cli/interruptible.h"
#include "cli/json_output.h"
#include "cli/open_model.h"
#include "cli/options.h"
#include "cli/record.h"
#include "cli/terminal.h"
#include "engine/recorder.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "model/safetensors.h"

namespace fs::cli {
namespace {

struct LogitsOptions {
  CommonOptions common;
  ComputeOptions compute;
  PromptOptions prompt;
  SamplingOptions sampling;
  RecordOptions record;
  std::optional<std::string> out;
  std::size_t top = 10;
  bool all_positions = false, json = false;
};

/// What one pass over the prompt gives.
struct Result {
  std::vector<float> next;  ///< [vocab_size] logits after the last token
  std::vector<double>
      logprobs;  ///< [tokens - 1] of prompt token 1, 2, … given those before it; --all-positions
  std::vector<engine::Candidate>
      candidates;  ///< what the sampler would draw from; if a sampling flag is given

  double mean_logprob() const {
    return std::accumulate(logprobs.begin(), logprobs.end(), 0.0) / static_cast<double>(logprobs.size());
  }
  double perplexity() const { return std::exp(-mean_logprob()); }
};

std::vector<TokenId> most_likely(std::span<const float> logits, std::size_t count) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), TokenId{0});
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(std::min(count, ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](TokenId a, TokenId b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  ids.erase(end, ids.end());
  return ids;
}

/// Runs the prompt. With --out the logits go to the file as they are computed, one row or all rows.
Result compute(const LogitsOptions& options, const std::vector<TokenId>& ids, engine::Session& session,
               engine::TapObserver* taps, std::size_t vocab_size, const Progress& progress) {
  Result result;
  InterruptibleTaps interruptible(taps);
  engine::ForwardOptions forward;
  forward.taps = &interruptible;
  forward.progress = progress;
  const auto run = [&](const model::ByteSink& sink) {
    if (options.all_positions) {
      forward.on_logits = [&](std::size_t position, std::span<const float> logits) {
        if (sink) sink(std::as_bytes(logits));
        if (position + 1 < ids.size())
          result.logprobs.push_back(engine::log_probability(logits, ids[position + 1]));
      };
    }
    const auto next = session.forward(ids, forward);
    result.next.assign(next.begin(), next.end());
    if (sink && !options.all_positions) sink(std::as_bytes(next));
  };
  if (!options.out) {
    run({});
    return result;
  }
  model::Tensor tensor;
  tensor.name = "logits";
  tensor.dtype = model::Dtype::f32;
  tensor.shape = {options.all_positions ? ids.size() : 1, vocab_size};
  model::write_safetensors(*options.out, std::span(&tensor, 1), {},
                           [&](const model::Tensor&, const model::ByteSink& sink) { run(sink); });
  return result;
}

Json as_json(const LogitsOptions& options, const OpenModel& model, std::string_view backend,
             const std::vector<TokenId>& ids, const Result& result) {
  Json top = Json::array();
  for (const TokenId id : most_likely(result.next, options.top)) {
    top.push_back({{"id", id}, {"logit", result.next[id]}, {"piece", json_piece(model.tokenizer(), id)}});
  }
  const auto [min, max] = std::minmax_element(result.next.begin(), result.next.end());
  Json document = {{"model", model.name()},
                   {"backend", backend},
                   {"dtype", options.compute.dtype},
                   {"prompt_ids", ids},
                   {"vocab_size", model.checkpoint.config().vocab_size},
                   {"hidden", model.checkpoint.config().hidden},
                   {"top", std::move(top)},
                   {"logsumexp", engine::log_sum_exp(result.next)},
                   {"min", *min},
                   {"max", *max}};
  if (options.sampling.any_given()) {
    Json candidates = Json::array();
    for (const auto& [id, probability] : result.candidates) {
      candidates.push_back({{"id", id}, {"probability", probability}});
    }
    document["candidates"] = std::move(candidates);
  }
  if (options.all_positions) {
    Json positions = Json::array();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      positions.push_back({{"position", i},
                           {"id", ids[i]},
                           {"piece", json_piece(model.tokenizer(), ids[i])},
                           {"logprob", i == 0 ? Json() : Json(result.logprobs[i - 1])}});
    }
    document["positions"] = std::move(positions);
    document["perplexity"] = result.logprobs.empty() ? Json() : Json(result.perplexity());
  }
  return document;
}

void print_positions(const OpenModel& model, const std::vector<TokenId>& ids, const Result& result) {
  print("  POSITION  TOKEN ID     LOG-PROB  DECODED PIECE\n");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string logprob = i == 0 ? "-" : fmt::format("{:.6f}", result.logprobs[i - 1]);
    print(
        fmt::format("{:>10}{:>10}{:>13}  {}\n", i, ids[i], logprob, quoted_piece(model.tokenizer(), ids[i])));
  }
  if (result.logprobs.empty()) {
    print("perplexity: - (one token has nothing before it)\n");
  } else {
    print(fmt::format("perplexity: {:.6f} · mean log-probability {:.6f} over {} tokens\n",
                      result.perplexity(), result.mean_logprob(), result.logprobs.size()));
  }
}

void print_tables(const LogitsOptions& options, const OpenModel& model, const std::vector<TokenId>& ids,
                  const Result& result) {
  const model::Config& config = model.checkpoint.config();
  const std::vector<TokenId> top = most_likely(result.next, options.top);
  const bool probabilities = options.sampling.any_given();
  std::map<TokenId, double> probability;
  for (const auto& candidate : result.candidates) probability[candidate.id] = candidate.probability;

  print(fmt::format("prompt tokens: {} · residual [seq={}, H={}]\n", ids.size(), ids.size(), config.hidden));
  if (options.all_positions) print_positions(model, ids, result);
  print(fmt::format("next-token logits: [V={}] · top {}\n", config.vocab_size, top.size()));
  print(fmt::format("  TOKEN ID        LOGIT{}  DECODED PIECE\n", probabilities ? "  PROBABILITY" : ""));
  for (const TokenId id : top) {
    const std::string share = probabilities ? fmt::format("{:>12.6f}", probability[id]) : "";
    print(fmt::format("{:>10}{:>14.6f}{}  {}\n", id, result.next[id], share,
                      quoted_piece(model.tokenizer(), id)));
  }
}

ExitCode logits(const LogitsOptions& options, const Hooks& hooks) {
  const OpenModel model = open_model(options.common, options.compute);
  const std::vector<TokenId> ids =
      prompt_ids(options.prompt, model.tokenizer(), model.name(), options.common.quiet);
  model.check_prompt(ids, 0);
  const engine::Sampler sampler(options.sampling.sampler, model.n_ids());
  engine::Recorder recorder(chosen_taps(options.record.taps, model.checkpoint.config().n_layers));

  if (options.record.file) AtomicFile::check(*options.record.file);

  const InterruptScope interrupt;
  ProgressBar progress(options.common.quiet);
  const auto backend = load_backend(model, options.compute, hooks, progress);
  engine::Session session(*backend, model.context);
  Result result = compute(options, ids, session, options.record.file ? &recorder : nullptr,
                          model.checkpoint.config().vocab_size, progress.callback());
  progress.erase();
  if (options.record.file) {
    write_recording(*options.record.file, recorder.recording(), model, backend->name(), ids,
                    progress.callback());
    progress.erase();
  }
  if (options.sampling.any_given()) result.candidates = sampler.candidates(result.next, ids);

  if (options.json) {
    print_json(as_json(options, model, backend->name(), ids, result));
  } else {
    print_tables(options, model, ids, result);
  }
  return ExitCode::ok;
}

}  // namespace

void add_logits(CommandLine& line) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App& command = *line.app.add_subcommand("logits", "The model's scores for the token after a prompt");
  command.footer(
      "With any sampling flag a column of probabilities shows what `fs generate` with these flags would draw "
      "from.\n\n"
      "Examples:\n"
      "  fs logits \"The capital of France is\"\n"
      "  fs logits --temp 0.7 --topk 5 \"The capital of France is\"\n"
      "  fs logits --all-positions --json \"Once upon a time\"\n"
      "  fs logits --model synthetic:tiny-odd --tokens 1,2,3 --out logits.safetensors\n"
      "  fs logits --record taps.safetensors --taps embed,block_out --layers 0-2 \"Two and two\"\n");
  add_prompt(command, options->prompt, "PROMPT");
  add_prompt_tokens(command, options->prompt);
  add_number<std::size_t>(command, "--top", options->top, 1, std::numeric_limits<std::size_t>::max(),
                          "How many of the likeliest tokens to list. Default: 10");
  command.add_flag("--all-positions", options->all_positions,
                   "Also the log-probability of every prompt token, and the prompt's perplexity");
  add_file(
      command, "-o,--out", options->out,
      "Write all logits to a safetensors file: \"logits\", F32 [1, V], with --all-positions [tokens, V]");
  command.add_flag("--json", options->json, "One JSON object");
  add_sampling(command, options->sampling);
  add_record(command, options->record);
  add_common(command, options->common);
  add_compute(command, options->compute);
  command.callback([&line, options] {
    line.use_less = small_context;
    line.action = [&line, options] { return logits(*options, line.hooks); };
  });
}

}  // namespace fs::cli

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/diff_side.h"
#include "cli/flags.h"
#include "cli/generation.h"
#include "cli/input.h"
#include "cli/interruptible.h"
#include "cli/json_output.h"
#include "cli/spec.h"
#include "cli/terminal.h"
#include "engine/quality.h"
#include "engine/sampler.h"
#include "engine/session.h"

namespace fs::cli {
namespace {

constexpr std::size_t default_window = 512;  // as in llama.cpp's perplexity

struct EvalOptions {
  ComputeSpec spec;
  PromptOptions text;
  std::optional<std::string> against;
  bool json = false;
};

/// The text, cut into windows that are run each from an empty context.
struct Text {
  std::vector<TokenId> ids;
  std::size_t window = 0;  ///< tokens at most

  std::size_t windows() const { return (ids.size() + window - 1) / window; }
  std::span<const TokenId> at(std::size_t begin) const {
    return std::span(ids).subspan(begin, std::min(window, ids.size() - begin));
  }
};

/// What is measured: of the model itself, and of the one that it is held against.
struct Evaluation {
  engine::Perplexity run, against;
  engine::Divergence divergence;
};

/// Side B is the model that the flags choose; side A, where there is one, that of --against.
Sides open_models(const EvalOptions& options) {
  Sides sides;
  sides.b.spec = options.spec;
  sides.b.text = fmt::format("{}:{}", options.spec.compute.backend, options.spec.compute.dtype);
  if (!options.against) {
    sides.b.model = std::make_shared<const OpenModel>(open_model(options.spec.common, options.spec.compute));
    return sides;
  }
  ComputeSpec defaults = options.spec;
  defaults.compute.dtype = "auto";  // what a quantised model is held against is the stored one
  sides.a.text = *options.against;
  sides.a.spec = parse_spec(*options.against, "--against", defaults);
  open_sides(sides, std::nullopt, false, {});
  return sides;
}

Text read_windows(const EvalOptions& options, const OpenModel& model) {
  if (options.text.named().empty() && stdin_is_terminal()) {
    fail(ExitCode::usage, "no text: name a file, or give --stdin or --tokens");
  }
  Text text{prompt_ids(options.text, model.tokenizer(), model.name(), options.spec.common.quiet),
            options.spec.compute.context.value_or(std::min(default_window, model.context))};
  if (text.window < 2)
    fail(ExitCode::usage, "--ctx 1: a window of one token predicts none, expected at least 2");
  if (text.ids.size() < 2) {
    fail(ExitCode::usage, "the text has {} token{}: at least two are needed to predict one", text.ids.size(),
         text.ids.size() == 1 ? "" : "s");
  }
  for (std::size_t begin = 0; begin < text.ids.size(); begin += text.window) {
    const auto window = text.at(begin);
    model.check_prompt({window.begin(), window.end()}, 0);
  }
  return text;
}

/// One model on its way through the text.
struct Runner {
  engine::Session session;
  engine::Perplexity& perplexity;

  Runner(const Side& side, std::size_t window, engine::Perplexity& result)
      : session(*side.backend, window), perplexity(result) {}

  /// Runs tokens [begin, begin + count) of a window and hands over the logits of each.
  void run(std::span<const TokenId> window, std::size_t begin, std::size_t count, const Progress& progress,
           const std::function<void(std::size_t position, std::span<const float> logits)>& on_logits) {
    InterruptibleTaps interruptible;
    engine::ForwardOptions forward;
    forward.chunk = count;
    forward.taps = &interruptible;
    forward.progress = progress;
    forward.on_logits = [&](std::size_t position, std::span<const float> logits) {
      if (position + 1 < window.size()) perplexity.add(engine::log_probability(logits, window[position + 1]));
      on_logits(position, logits);
    };
    session.forward(window.subspan(begin, count), forward);
  }
};

/// Runs the text through both models side by side, so that no more logits are held than those of one chunk.
Evaluation evaluate(const Sides& sides, const Text& text, const Progress& progress) {
  Evaluation result;
  const bool compares = sides.a.backend != nullptr;
  Runner run(sides.b, text.window, result.run);
  std::optional<Runner> against;
  std::size_t chunk = sides.b.backend->preferred_chunk();
  if (compares) {
    against.emplace(sides.a, text.window, result.against);
    chunk = std::min(chunk, sides.a.backend->preferred_chunk());
  }
  const std::size_t vocab_size = sides.b.backend->config().vocab_size;
  std::vector<float> expected;  // [chunk, vocab_size] logits of the model that is held against
  std::size_t done = 0;
  const Progress report = [&](std::string_view, std::uint64_t, std::uint64_t) {
    progress("eval", done, text.ids.size());
  };
  for (std::size_t start = 0; start < text.ids.size(); start += text.window) {
    const auto window = text.at(start);
    run.session.rewind(0);
    if (compares) against->session.rewind(0);
    for (std::size_t begin = 0; begin < window.size(); begin += chunk) {
      const std::size_t count = std::min(chunk, window.size() - begin);
      if (compares) {
        expected.clear();
        against->run(window, begin, count, report, [&](std::size_t, std::span<const float> logits) {
          expected.insert(expected.end(), logits.begin(), logits.end());
        });
      }
      run.run(window, begin, count, report, [&](std::size_t position, std::span<const float> logits) {
        if (!compares) return;
        const auto row =
            std::span<const float>(expected).subspan((position - begin) * vocab_size, vocab_size);
        result.divergence.add(start + position, row, logits);
      });
      done += count;
    }
  }
  return result;
}

Json as_json(const Sides& sides, const Text& text, const Evaluation& result) {
  const auto describe = [](const Side& side, const engine::Perplexity& perplexity) {
    return Json{{"model", side.model->name()},
                {"backend", side.backend->name()},
                {"dtype", side.spec.compute.dtype},
                {"perplexity", perplexity.value()},
                {"mean_logprob", perplexity.mean_log_probability()}};
  };
  Json document = describe(sides.b, result.run);
  document["tokens"] = text.ids.size();
  document["windows"] = text.windows();
  document["ctx"] = text.window;
  document["scored"] = result.run.count();
  if (sides.a.backend == nullptr) return document;
  const engine::Divergence& d = result.divergence;
  document["against"] = describe(sides.a, result.against);
  document["kl"] = {{"mean", d.mean()}, {"max", d.largest()}, {"max_position", d.largest_position()}};
  document["top1"] = {{"agreeing", d.agreeing()},
                      {"positions", d.count()},
                      {"share", static_cast<double>(d.agreeing()) / static_cast<double>(d.count())}};
  return document;
}

void print_table(const Sides& sides, const Text& text, const Evaluation& result) {
  print(fmt::format("text: {} tokens in {} window{} of at most {} · {} predicted\n", text.ids.size(),
                    text.windows(), text.windows() == 1 ? "" : "s", text.window, result.run.count()));
  const auto print_side = [](const char* name, const Side& side, const engine::Perplexity& perplexity) {
    print(fmt::format("{:<15} {:.6f} · mean log-probability {:.6f} · {}:{}, {}\n", name, perplexity.value(),
                      perplexity.mean_log_probability(), side.backend->name(), side.spec.compute.dtype,
                      side.model->name()));
  };
  print_side("perplexity", sides.b, result.run);
  if (sides.a.backend == nullptr) return;
  print_side("  against", sides.a, result.against);
  const engine::Divergence& d = result.divergence;
  const std::size_t worst = d.largest_position();
  print(fmt::format("{:<15} mean {:.6g} · max {:.6g} nats, after token {} {}\n", "KL divergence", d.mean(),
                    d.largest(), worst, quoted_piece(sides.b.model->tokenizer(), text.ids[worst])));
  print(fmt::format("{:<15} {:.3f} % · {} of {} positions\n", "top-1 agreement",
                    100 * static_cast<double>(d.agreeing()) / static_cast<double>(d.count()), d.agreeing(),
                    d.count()));
}

ExitCode eval(const EvalOptions& options, const Hooks& hooks) {
  Sides sides = open_models(options);
  const Text text = read_windows(options, *sides.b.model);
  const InterruptScope interrupt;
  ProgressBar progress(options.spec.common.quiet);
  if (options.against) {
    load_sides(sides, hooks, progress);
  } else {
    sides.b.backend = load_backend(*sides.b.model, options.spec.compute, hooks, progress);
  }
  const Evaluation result = evaluate(sides, text, progress.callback());
  progress.erase();
  if (options.json) {
    print_json(as_json(sides, text, result));
  } else {
    print_table(sides, text, result);
  }
  return ExitCode::ok;
}

}  // namespace

void add_eval(CommandLine& line) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App& command =
      *line.app.add_subcommand("eval", "How well a model predicts a text, and what quantisation costs");
  command.footer(
      "The text is cut into windows of --ctx tokens; each starts with nothing before it, and every token but "
      "its\n"
      "first is predicted. --against SPEC also runs a second model: KL divergence is that of the chosen "
      "model from\n"
      "it, over the next-token distributions at every position; top-1 agreement is how often both find the "
      "same\n"
      "token most likely. SPEC is "
      "backend[:dtype][,dtype=DTYPE][,isa=ISA][,threads=N][,device=N][,model=MODEL]; what "
      "leaves\n"
      "out is as the flags say, but the dtype, which is then the stored one.\n\n"
      "Examples:\n"
      "  fs eval README.md\n"
      "  fs eval --dtype int4 --against reference:bf16 README.md\n"
      "  fs eval --model Qwen3-0.6B-Q8_0.gguf --against cpu,model=Qwen/Qwen3-0.6B --ctx 2048 --json "
      "text.txt\n");
  add_file(command, "FILE,-f,--file", options->text.file, "The text; - is standard input");
  command.add_flag("--stdin", options->text.standard_input, "Read the text from standard input");
  add_prompt_tokens(command, options->text);
  add_text(command, "--against", options->against, "A second model to hold this one against")
      ->type_name("SPEC");
  command.add_flag("--json", options->json, "One JSON object");
  add_common(command, options->spec.common);
  add_compute(command, options->spec.compute);
  command.get_option("--ctx")->description(
      "Tokens of a window. Default: 512, or the model's limit if that is lower");
  command.callback([&line, options] {
    line.use_less = "use a smaller model or window (--ctx)";
    line.action = [&line, options] { return eval(*options, line.hooks); };
  });
}

}  // namespace fs::cli

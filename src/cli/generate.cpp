#include <chrono>
#include <limits>
#include <memory>

#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/generation.h"
#include "cli/generation_job.h"
#include "cli/input.h"
#include "cli/json_output.h"
#include "cli/open_model.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace fs::cli {
namespace {

struct GenerateOptions {
  CommonOptions common;
  ComputeOptions compute;
  PromptOptions prompt;
  SamplingOptions sampling;
  std::optional<std::string> prompts, system;
  std::optional<bool> think;
  std::vector<std::string> stops;
  std::int64_t max_tokens = 128;
  std::size_t parallel = 0;  ///< 0, not given: as the backend prefers
  bool chat = false, ignore_eos = false, json = false, speculate = false;
};

/// The job that the flags describe, without its prompt.
GenerationJob job_from_flags(const GenerateOptions& options) {
  GenerationJob job;
  const bool quiet = options.common.quiet;
  job.chat = options.chat;
  if (options.system) job.system = valid_utf8(*options.system, "--system", quiet);
  job.think = options.think;
  if (options.max_tokens >= 0) job.max_tokens = static_cast<std::size_t>(options.max_tokens);
  job.ignore_eos = options.ignore_eos;
  for (const std::string& stop : options.stops) job.stops.push_back(valid_utf8(stop, "--stop", quiet));
  job.sampler = options.sampling.sampler;
  job.seed = options.sampling.seed;
  return job;
}

/// Everything to run, checked: after this only the model itself can fail.
std::vector<GenerationRequest> make_requests(const GenerateOptions& options, const OpenModel& model) {
  GenerationJob job = job_from_flags(options);
  std::vector<GenerationRequest> requests;
  if (options.prompts) {
    for (NumberedRequest& numbered : read_requests(*options.prompts, job, model)) {
      requests.push_back(std::move(numbered.request));
    }
    return requests;
  }
  if (options.prompt.only_tokens()) {
    job.tokens = parse_token_ids(*options.prompt.tokens, "--tokens");
  } else {
    const std::string text = read_text(options.prompt, FinalNewline::drop);
    job.text = valid_utf8(text, "the prompt", options.common.quiet);
  }
  requests.push_back(make_request(job, model));
  return requests;
}

Json as_json(const OpenModel& model, std::string_view backend, const GenerateOptions& options,
             const GenerationRequest& request, const Generation& result) {
  const auto speed = result.tokens_per_second();
  Json document = {{"model", model.name()},
                   {"backend", backend},
                   {"dtype", options.compute.dtype},
                   {"prompt_ids", request.prompt},
                   {"ids", result.ids},
                   {"pieces", json_pieces(model.tokenizer(), result.ids)},
                   {"logprobs", result.logprobs},
                   {"text", result.text},
                   {"stop_reason", name(result.reason)}};
  if (result.reason == StopReason::stop) document["stop_text"] = result.stop_text;
  document["seed"] = request.sampler.seed;
  document["timing"] = {
      {"first_token_seconds", result.ids.empty() ? Json() : Json(result.first_token_seconds)},
      {"seconds", result.seconds},
      {"tokens_per_second", speed ? Json(*speed) : Json()}};
  if (options.speculate) {
    document["speculation"] = {{"proposed", result.proposed}, {"accepted", result.accepted}};
  }
  return document;
}

std::string plural(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void print_statistics(const GenerateOptions& options, const GenerationRequest& request,
                      const Generation& result) {
  std::string line = fmt::format("seed {}{} · {} · {} generated", request.sampler.seed,
                                 request.sampler.temperature == 0 ? " (greedy)" : "",
                                 plural(request.prompt.size(), "prompt token"), result.ids.size());
  if (!result.ids.empty()) line += fmt::format(" · first token {:.3f} s", result.first_token_seconds);
  if (const auto speed = result.tokens_per_second()) line += fmt::format(" · {:.2f} tok/s", *speed);
  if (options.speculate)
    line += fmt::format(" · {} of {} guesses accepted", result.accepted, result.proposed);
  if (options.compute.dtype != "auto") line += fmt::format(" · weights {}", options.compute.dtype);
  if (options.compute.kv != "f32") line += fmt::format(" · KV {}", options.compute.kv);
  if (options.compute.act != "f32") line += fmt::format(" · activations {}", options.compute.act);
  line += fmt::format(" · stop: {}", name(result.reason));
  if (result.reason == StopReason::stop) line += fmt::format(" \"{}\"", result.stop_text);
  notice(line);
}

/// Of all prompts together.
void print_total(std::size_t prompts, std::size_t parallel, std::size_t tokens, double seconds) {
  notice(fmt::format("{}, {} at once · {} generated · {:.3f} s · {:.2f} tok/s together",
                     plural(prompts, "prompt"), std::min(parallel, prompts), tokens, seconds,
                     static_cast<double>(tokens) / seconds));
}

/// Runs all requests and prints the answers. True if Ctrl-C ended it.
bool answer(const GenerateOptions& options, const OpenModel& model, const engine::Backend& backend,
            const std::vector<GenerationRequest>& requests, ProgressBar& progress) {
  const bool streams = !options.json && !options.prompts;
  bool begun = false, interrupted = false;
  std::size_t prompts = 0, tokens = 0;
  GenerationPlan plan;
  plan.context = model.context;
  plan.parallel = options.parallel;
  plan.threads = options.compute.threads == 0 ? available_processors() : options.compute.threads;
  plan.speculate = options.speculate;
  if (plan.parallel == 0) plan.parallel = backend.preferred_steps();

  GenerationEvents events;
  events.progress = progress.callback();
  events.on_text = [&](std::string_view text) {
    if (!streams) return;
    begun = true;
    progress.erase();
    print(text);
    flush();
  };
  events.on_done = [&](const GenerationRequest& request, const Generation& result) {
    progress.erase();
    if (!streams) {
      print_json(as_json(model, backend.name(), options, request, result));
    } else if (!result.text.ends_with('\n')) {
      print("\n");
    }
    begun = false;
    flush();
    if (!options.common.quiet) print_statistics(options, request, result);
    ++prompts;
    tokens += result.ids.size();
    interrupted = interrupted || result.reason == StopReason::interrupted;
  };
  const auto begin = std::chrono::steady_clock::now();
  try {
    generate(backend, model.tokenizer(), model.n_ids(), requests, plan, events);
  } catch (const Error&) {
    if (begun) print("\n");  // the error gets a line of its own
    throw;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (!options.common.quiet && prompts > 1) print_total(prompts, plan.parallel, tokens, seconds.count());
  return interrupted;
}

ExitCode generate_command(const GenerateOptions& options, const Hooks& hooks) {
  const OpenModel model = open_model(options.common, options.compute);
  const std::vector<GenerationRequest> requests = make_requests(options, model);

  const InterruptScope interrupt;
  ProgressBar progress(options.common.quiet);
  const auto backend = load_backend(model, options.compute, hooks, progress);
  if (options.speculate && backend->preferred_steps() == 1 && !options.common.quiet) {
    progress.erase();
    notice(fmt::format("--speculate: the {} backend runs a guess at the price of a token: none are made",
                       backend->name()));
  }
  return answer(options, model, *backend, requests, progress) ? ExitCode::interrupted : ExitCode::ok;
}

}  // namespace

void add_generate(CommandLine& line) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App& command = *line.app.add_subcommand("generate", "Continue a prompt, or answer it as a chat");
  command.footer(
      "The answer streams to standard output, statistics go to standard error. One newline at the end of a "
      "prompt\n"
      "from a file or standard input is not part of it. Ctrl-C ends the answer, a second one quits at "
      "once.\n\n"
      "Examples:\n"
      "  fs generate \"The capital of France is\"\n"
      "  fs generate --chat --no-think \"What is the capital of Italy?\"\n"
      "  fs generate --temp 0.7 --topp 0.9 --seed 1 -n 64 \"Once upon a time\"\n"
      "  fs generate --stop . -q \"The capital of Italy is\"\n"
      "  echo '{\"prompt\": \"Two and two\", \"n\": 8}' | fs generate --prompts -\n");
  add_prompt(command, options->prompt, "PROMPT");
  add_prompt_tokens(command, options->prompt);
  CLI::Option* prompts = add_file(
      command, "--prompts", options->prompts,
      "Many prompts: one JSON object a line with prompt or tokens, and optionally chat, system, think, n, "
      "ignore_eos, stop, seed, temp, top_k, top_p, min_p, repeat_penalty, presence_penalty; prints one "
      "JSON object a line, in order; - is standard input");
  prompts->type_name("FILE.jsonl");
  for (const char* source : {"PROMPT", "--prompt", "--file", "--stdin", "--tokens"}) {
    prompts->excludes(command.get_option(source));
  }
  add_number<std::size_t>(
      command, "--parallel", options->parallel, 1, 1024,
      "Prompts of --prompts that run at once, also -np, sharing each read of the weights; their answers are "
      "those of one at a time. Default: 8 on the cpu backend, else 1")
      ->needs(prompts);
  add_number<std::size_t>(command, "--np", options->parallel, 1, 1024, "-np (flags.h)")
      ->needs(prompts)
      ->group("");
  add_number<std::int64_t>(
      command, "-n,--n-predict", options->max_tokens, -1, std::numeric_limits<std::int64_t>::max(),
      "Tokens to generate at most; -1: until the model ends or the context is full. Default: 128");
  add_texts(command, "--stop", options->stops, "End before this text; may be given several times");
  CLI::Option* chat =
      command.add_flag("--chat", options->chat, "The prompt is a user's message: apply the chat template");
  add_text(command, "--system", options->system, "The chat's system message")->needs(chat);
  CLI::Option* think = command.add_flag(
      "--think", [options](std::int64_t) { options->think = true; },
      "The chat lets the model think first (its default)");
  CLI::Option* no_think = command.add_flag(
      "--no-think", [options](std::int64_t) { options->think = false; },
      "The chat asks for an answer without thinking");
  think->needs(chat)->excludes(no_think);
  no_think->needs(chat);
  command.add_flag("--ignore-eos", options->ignore_eos, "Go on after end-of-text tokens");
  command.add_flag("--json", options->json,
                   "One JSON object: ids, pieces, logprobs, text, stop_reason, seed, timing; no streaming");
  command.add_flag("--speculate", options->speculate,
                   "Guess from earlier text what follows and check several tokens in one pass: the same "
                   "answer, sooner where text repeats");
  add_sampling(command, options->sampling);
  add_seed(command, options->sampling.seed, "Decides every draw. Default: chosen at random and printed");
  add_common(command, options->common);
  add_compute(command, options->compute);
  command.callback([&line, options] {
    line.use_less = options->prompts
                        ? "use fewer prompts at once (--parallel), a smaller model or context (--ctx)"
                        : small_context;
    line.action = [&line, options] { return generate_command(*options, line.hooks); };
  });
}

}  // namespace fs::cli

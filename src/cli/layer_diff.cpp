#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "base/atomic_file.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/comparison.h"
#include "cli/diff_report.h"
#include "cli/diff_side.h"
#include "cli/flags.h"
#include "cli/generation_job.h"
#include "cli/greedy_diff.h"
#include "cli/input.h"
#include "cli/record.h"
#include "cli/terminal.h"
#include "engine/backend_flags.h"

namespace fs::cli {
namespace {

struct LayerDiffOptions {
  ComputeSpec defaults;
  PromptOptions prompt;
  TapOptions taps;
  std::optional<std::string> a, b, prompts, record, svg;
  engine::Tolerance tolerance;
  std::size_t top = 1, decode = 0, greedy = 0;
  bool inject = false, self = false, all = false, force = false, json = false;
};

/// A prompt and what to call it in the report.
struct NamedPrompt {
  std::string name;  ///< empty if it is the only one
  std::vector<TokenId> ids;
};

/// Whether the command line names a prompt; standard input counts only if it is asked for.
bool prompt_given(const LayerDiffOptions& options) {
  return options.prompts || !options.prompt.named().empty();
}

std::vector<NamedPrompt> read_prompts(const LayerDiffOptions& options, const OpenModel& model) {
  if (!options.prompts) {
    return {{"", prompt_ids(options.prompt, model.tokenizer(), model.name(), options.defaults.common.quiet)}};
  }
  std::vector<NamedPrompt> prompts;
  for (const NumberedRequest& numbered : read_requests(*options.prompts, {}, model)) {
    prompts.push_back({numbered.where, numbered.request.prompt});
  }
  return prompts;
}

/// The prompts to run: those given, else the one a recording was made of. Throws Error(unusable) where both
/// are there and differ, unless --force.
std::vector<NamedPrompt> choose_prompts(const LayerDiffOptions& options, const Sides& sides) {
  const Side* recorded = sides.a.recorded() ? &sides.a : sides.b.recorded() ? &sides.b : nullptr;
  if (recorded == nullptr) return read_prompts(options, *sides.model());
  const auto recorded_ids = recorded_tokens(*recorded);
  if (!prompt_given(options) || sides.model() == nullptr) return {{"", recorded_ids}};
  auto prompts = read_prompts(options, *sides.model());
  if (!options.force && (prompts.size() != 1 || prompts.front().ids != recorded_ids)) {
    fail(ExitCode::unusable,
         "{}: recorded of other tokens than the prompt; leave the prompt out to run the recorded ones, or "
         "--force",
         *recorded->file);
  }
  return prompts;
}

/// Refuses what does not go together. Throws Error(usage).
void check(const LayerDiffOptions& options, const Sides& sides) {
  const bool recorded = sides.a.recorded() || sides.b.recorded();
  const auto needs_running = [&](bool used, const char* flag) {
    if (used && recorded) fail(ExitCode::usage, "{}: both sides must run; one is recorded", flag);
  };
  needs_running(options.decode > 0, "--decode");
  needs_running(options.greedy > 0, "--greedy");
  needs_running(options.prompts.has_value(), "--prompts");
  needs_running(options.record.has_value(), "--record");
  for (const auto& flag : engine::flags_without_effect("", backend_options(options.defaults.compute))) {
    const auto has = [&](const Side& side) {
      const std::string& backend = side.spec.compute.backend;
      return !side.recorded() && (backend == "auto" || std::ranges::count(flag.backends, backend) > 0);
    };
    if (!has(sides.a) && !has(sides.b))
      fail(ExitCode::usage, "{}: neither side is {}", flag.text, fmt::join(flag.backends, " or "));
  }
  if (options.self && sides.b.recorded()) fail(ExitCode::usage, "--self: side B must run, it is recorded");
  if (options.inject && sides.b.recorded())
    fail(ExitCode::usage, "--inject: side B must run, it is recorded");
}

/// "cpu", or "auto (cpu)" where the SPEC leaves the choice open.
std::string side_name(const Side& side) {
  const bool chosen = side.backend != nullptr && side.spec.compute.backend != side.backend->name();
  return chosen ? fmt::format("{} ({})", side.text, side.backend->name()) : side.text;
}

std::string title(const LayerDiffOptions& options, const Sides& sides) {
  const std::string model = sides.model() == nullptr ? "" : fmt::format(" · {}", sides.model()->name());
  if (options.self)
    return one_line(fmt::format("A: {0} in one pass · B: {0} token by token{1}", side_name(sides.b), model));
  return one_line(fmt::format("A: {} · B: {}{}", side_name(sides.a), side_name(sides.b), model));
}

void print_report(const LayerDiffOptions& options, const Sides& sides, const Comparison& comparison) {
  const DiffReport& report = comparison.report();
  const text::Tokenizer* tokenizer = sides.model() == nullptr ? nullptr : sides.model()->tokenizer();
  if (options.json) {
    Json document = {{"a", side_name(sides.a)}, {"b", side_name(sides.b)}};
    if (sides.model() != nullptr) document["model"] = sides.model()->name();
    document.update(report.json(options.inject));
    document["not_compared"] = comparison.not_compared();
    document["next_token"] =
        comparison.next_token() ? next_token_json(*comparison.next_token(), tokenizer) : Json();
    print_json(document);
    return;
  }
  print(fmt::format("{}\nworst element of each tap as a share of {:g} + {:g}·|a|{}\n\n",
                    title(options, sides), options.tolerance.atol, options.tolerance.rtol,
                    options.inject ? ", each operation fed with A's values" : ""));
  print(report.table(colour_on_stdout()) + "\n");
  if (!report.within()) print(report.elements(options.all));
  if (comparison.not_compared() > 0) {
    print(fmt::format("not compared: {} taps that side A does not have\n", comparison.not_compared()));
  }
  print(report.verdict(options.inject) + "\n");
  if (comparison.next_token()) {
    print(fmt::format("next token: {}\n", next_token_text(*comparison.next_token(), tokenizer)));
  }
}

ExitCode compare_greedy(const LayerDiffOptions& options, const Sides& sides,
                        const std::vector<NamedPrompt>& prompts, ProgressBar& progress) {
  bool within = true;
  for (const NamedPrompt& prompt : prompts) {
    const GreedyDiff diff =
        greedy_diff(sides, prompt.ids, options.greedy, options.tolerance, progress.callback());
    progress.erase();
    const text::Tokenizer* tokenizer = sides.model()->tokenizer();
    if (options.json) {
      Json document = {
          {"a", side_name(sides.a)}, {"b", side_name(sides.b)}, {"model", sides.model()->name()}};
      if (!prompt.name.empty()) document["prompt"] = prompt.name;
      document.update(greedy_json(diff, tokenizer));
      print_json(document);
    } else {
      print((prompt.name.empty() ? "" : prompt.name + ": ") + greedy_text(diff, tokenizer));
    }
    flush();
    within = within && diff.within();
  }
  return within ? ExitCode::ok : ExitCode::failed;
}

void write_svg(const std::string& path, const std::string& document) {
  AtomicFile file(path);
  file.write(document);
  file.commit();
}

ExitCode layer_diff(const LayerDiffOptions& options, const Hooks& hooks) {
  const std::string b = options.b.value_or("auto"), a = options.self ? b : options.a.value_or("reference");
  Sides sides{parse_side(a, "--a", options.defaults), parse_side(b, "--b", options.defaults)};
  check(options, sides);
  for (const auto& output : {options.record, options.svg}) {
    if (output) AtomicFile::check(*output);
  }

  const InterruptScope interrupt;
  ProgressBar progress(options.defaults.common.quiet);
  // Tokens can be told before a model is open, and then choose among the golden recordings.
  std::optional<std::vector<TokenId>> tokens;
  if (options.prompt.only_tokens()) tokens = parse_token_ids(*options.prompt.tokens, "--tokens");
  open_sides(sides, tokens, options.force, progress.callback());
  progress.erase();
  const auto prompts = choose_prompts(options, sides);
  for (const Side* side : {&sides.a, &sides.b}) {
    if (side->model == nullptr) continue;
    for (const auto& prompt : prompts) {
      try {
        side->model->check_prompt(prompt.ids, std::max(options.decode, options.greedy));
      } catch (const Error& error) {
        fail(error.code(), "{}{}{}", prompt.name, prompt.name.empty() ? "" : ": ", error.what());
      }
    }
  }
  const std::size_t n_layers = sides.model() != nullptr
                                   ? sides.model()->checkpoint.config().n_layers
                                   : std::max(sides.a.recording->n_layers(), sides.b.recording->n_layers());
  const engine::TapChoice taps = chosen_taps(options.taps, n_layers);
  load_sides(sides, hooks, progress);
  if (options.greedy > 0) return compare_greedy(options, sides, prompts, progress);

  engine::Recorder recorder(taps);
  Comparison comparison(
      {taps, options.tolerance, options.top, options.inject, options.record ? &recorder : nullptr}, n_layers,
      progress.callback());
  for (const NamedPrompt& prompt : prompts) {
    if (options.self) {
      comparison.compare_with_itself(sides.b, prompt.ids, prompt.name);
    } else {
      comparison.compare(sides, prompt.ids, options.decode, prompt.name);
    }
  }
  progress.erase();
  if (comparison.report().empty()) {
    fail(ExitCode::failed, "nothing was compared: side A has none of the {} taps of side B",
         comparison.not_compared());
  }
  if (options.record) {
    write_recording(*options.record, recorder.recording(), *sides.a.model, sides.a.backend->name(),
                    prompts.front().ids, progress.callback());
    progress.erase();
  }
  if (options.svg) write_svg(*options.svg, heat_map(comparison.report(), title(options, sides)));
  print_report(options, sides, comparison);
  return comparison.report().within() ? ExitCode::ok : ExitCode::failed;
}

}  // namespace

void add_layer_diff(CommandLine& line) {
  auto options = std::make_shared<LayerDiffOptions>();
  CLI::App& command =
      *line.app.add_subcommand("layer-diff", "Compare two ways of running a model, operation by operation");
  command.footer(
      "A SPEC is a backend with what differs from the other flags, "
      "backend[:dtype][,isa=ISA][,kv=KV][,act=ACT][,step=STEP][,threads=N][,device=N][,model=MODEL], or\n"
      "a recorded run: golden (what Hugging Face computes for the bundled and synthetic models) or\n"
      "dump:FILE.safetensors (of --record, or of tools/dump_hf.py for any Hugging Face checkpoint).\n"
      "The exit code is 0 if every value is within tolerance, 1 if not; what is not finite never is.\n\n"
      "Examples:\n"
      "  fs layer-diff \"The capital of France is\"\n"
      "  fs layer-diff --a golden --b cpu\n"
      "  fs layer-diff --a cpu,isa=portable --b cpu,isa=avx2 --inject --tokens 1,2,3\n"
      "  fs layer-diff --a cpu:q8_0 --b cpu:q8_0,act=int8 --tokens 1,2,3\n"
      "  fs layer-diff --a cpu --b cpu:q8_0 --greedy 64 \"Once upon a time\"\n"
      "  fs layer-diff --self --b cpu \"Once upon a time\"\n"
      "  fs layer-diff --a dump:hf.safetensors --b cpu --svg heat.svg\n");
  add_prompt(command, options->prompt, "PROMPT");
  add_prompt_tokens(command, options->prompt);
  CLI::Option* prompts = add_file(command, "--prompts", options->prompts,
                                  "Many prompts, as of fs generate --prompts: the worst of them is shown");
  prompts->type_name("FILE.jsonl");
  for (const char* source : {"PROMPT", "--prompt", "--file", "--stdin", "--tokens"}) {
    prompts->excludes(command.get_option(source));
  }
  CLI::Option* a = add_text(command, "-a,--a", options->a, "Side A, taken to be right. Default: reference");
  a->type_name("SPEC");
  add_text(command, "-b,--b", options->b, "Side B. Default: auto, what fs generate uses")->type_name("SPEC");
  add_taps(command, options->taps, "compare");
  CLI::Option* inject = command.add_flag(
      "--inject", options->inject,
      "Feed every operation of B with A's values, so that each tap shows the error its own operation adds");
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  CLI::Option* decode =
      add_number<std::size_t>(command, "--decode", options->decode, 1, most,
                              "Also N steps after the prompt, both sides fed with A's most likely tokens");
  CLI::Option* self = command.add_flag(
      "--self", options->self,
      "Compare side B token by token with side B in one pass: finds cache and position faults");
  CLI::Option* greedy = add_number<std::size_t>(
      command, "--greedy", options->greedy, 1, most,
      "Instead of taps: generate N tokens on both sides and show the first that differs");
  add_number<std::size_t>(command, "--top", options->top, 1, 1000,
                          "Worst elements to list of a tap. Default: 1");
  add_number<double>(command, "--atol", options->tolerance.atol, 0, 1e30,
                     "Absolute tolerance. Default: 1e-4");
  add_number<double>(command, "--rtol", options->tolerance.rtol, 0, 1e30,
                     "Tolerance relative to A's value, added to the absolute one. Default: 1e-4");
  command.add_flag("--all", options->all, "List every tap beyond tolerance, not only the first");
  command.add_flag("--force", options->force,
                   "Compare with a recording of another model or prompt all the same");
  CLI::Option* record =
      add_file(command, "--record", options->record,
               "Also write side A's taps to a safetensors file; compare with it as dump:FILE");
  CLI::Option* svg = add_file(command, "--svg", options->svg, "Also draw the table as a heat map");
  svg->type_name("FILE.svg");
  command.add_flag("--json", options->json, "One JSON object");
  self->excludes(a)->excludes(inject)->excludes(decode)->excludes(greedy)->excludes(record);
  for (CLI::Option* other : {inject, decode, record, svg}) greedy->excludes(other);
  record->excludes(prompts);
  add_common(command, options->defaults.common);
  add_limits(command, options->defaults.compute);
  command.callback([&line, options] {
    line.use_less = small_context;
    line.action = [&line, options] { return layer_diff(*options, line.hooks); };
  });
}

}  // namespace fs::cli

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>

#include "base/atomic_file.h"
#include "base/thread_pool.h"
#include "bench/timeline.h"
#include "cli/bench_grid.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/open_model.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cpu/isa.h"

namespace fs::cli {
namespace {

struct BenchOptions {
  CommonOptions common;
  BenchGrid grid;
  std::vector<std::size_t> prompts = {512}, generations = {128}, depths = {0}, sequences = {1};
  std::size_t repetitions = 5;
  bool no_warm_up = false, roofline = true, kernels = false, json = false;
  std::string output = "md", output_err = "none";
  std::optional<std::string> plot;
};

/// Whether the processor's roofline bounds a backend; of "auto" it is known once it is made.
bool on_processor(std::string_view backend) { return backend == "cpu" || backend == "reference"; }

/// Whether --kernels shows those of its steps.
bool has_kernels(const bench::Workload& workload) {
  return workload.kind == bench::Workload::Kind::decode && workload.sequences == 1;
}

/// Throws Error(usage) unless every workload fits into the model's context.
void check_positions(const std::vector<bench::Workload>& all, const OpenModel& model) {
  const std::size_t most = model.checkpoint.config().max_positions;
  for (const bench::Workload& workload : all) {
    if (workload.depth > most || workload.tokens > most - workload.depth) {
      fail(ExitCode::usage, "{}: more positions than the {} that {} takes: lower -p, -n or -d",
           workload.name(), most, model.name());
    }
  }
}

/// Throws Error(usage) unless --kernels has something to time, and somewhere to show it.
void check_kernels(const BenchOptions& options, const std::vector<ComputeOptions>& all,
                   const std::vector<bench::Workload>& workloads) {
  if (!options.kernels) return;
  if (std::none_of(workloads.begin(), workloads.end(), has_kernels)) {
    fail(ExitCode::usage, "--kernels: it is for decoding one sequence, and -n and -np ask for no such test");
  }
  if (options.output == "csv" || options.output_err == "csv") {
    fail(ExitCode::usage, "--kernels: csv has no room for them: use md, json or jsonl");
  }
  for (const ComputeOptions& compute : all) {
    if (!on_processor(compute.backend)) continue;
    fail(ExitCode::usage, "--kernels: not for backend {}, only for cuda and cuda-emulated", compute.backend);
  }
}

/// Throws Error, naming the combination of flags, unless all of them can run.
void check_combinations(const std::vector<ComputeOptions>& all, const BenchGrid& grid,
                        const OpenModel& model) {
  for (const ComputeOptions& compute : all) {
    try {
      check_compute(model, compute);
    } catch (const Error& error) {
      std::string varied;
      for (std::size_t i = 0; i < bench_axes.size(); ++i) {
        const BenchAxis& axis = bench_axes[i];
        if (grid.values[i].size() > 1) varied += fmt::format("--{} {} ", axis.name, compute.*axis.value);
      }
      fail(error.code(), "{}{}{}", varied, varied.empty() ? "" : "cannot run: ", error.what());
    }
  }
}

std::size_t threads_of(const ComputeOptions& compute) {
  return compute.threads == 0 ? available_processors() : compute.threads;
}

std::vector<bench::Roofline> rooflines(const std::vector<ComputeOptions>& all, const Progress& progress) {
  std::vector<bench::Roofline> found;
  for (const ComputeOptions& compute : all) {
    const std::size_t threads = threads_of(compute);
    const bool known =
        std::any_of(found.begin(), found.end(), [&](const auto& r) { return r.threads == threads; });
    if (!known && (compute.backend == "auto" || on_processor(compute.backend))) {
      found.push_back(bench::measure_roofline(threads, progress));
    }
  }
  return found;
}

/// What the processor calls itself, from /proc/cpuinfo.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      const std::size_t begin = line.find_first_not_of(": \t", line.find(':'));
      if (begin != std::string::npos) return line.substr(begin);
    }
  }
  return "unknown processor";
}

/// The format of the first layer's MLP, as --dtype spells it: that of most bytes.
std::string dtype_of(const model::Weights& weights) {
  std::string text(model::name(weights.layers.front().gate_proj.dtype));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return text;
}

/// The arithmetic that the cpu backend's products are computed in; --act bf16 rounds and multiplies in fp32.
/// The instructions that a row's products are made of, and how many for one.
struct Instructions {
  bench::Arithmetic arithmetic = bench::Arithmetic::fp32;
  double products = 1;
};
Instructions instructions_of(const ComputeOptions& compute, std::string_view dtype) {
  const cpu::Kernels& kernels = cpu::choose_kernels(compute.isa);
  const bool integers = dtype == "q8_0" || dtype == "int4";
  if (compute.act == "int8") return {bench::Arithmetic::int8, 1};
  if (compute.act == "bf16" && dtype == "bf16" && kernels.bf16->bf16 != nullptr) {
    return {bench::Arithmetic::bf16, 1};
  }
  // Exact activations are three digits of int8 where weights are in panels.
  if (compute.act == "f32" && integers && kernels.q8_0->panels != nullptr)
    return {bench::Arithmetic::int8, 3};
  return {};
}

/// All of one combination of flags but the workload and its times.
BenchRow row_of(const ComputeOptions& compute, const engine::Backend& backend,
                const model::Weights& weights) {
  BenchRow row;
  row.dtype = dtype_of(weights);
  row.backend = backend.name();
  row.threads = threads_of(compute);
  for (const BenchAxis& axis : bench_axes) {
    if (axis.value == &ComputeOptions::dtype || axis.value == &ComputeOptions::backend) continue;
    row.choices.emplace_back(axis.name, compute.*axis.value);
  }
  for (auto& [flag, value] : row.choices) {
    if (flag == "step") value = backend.step();
    if (flag == "isa") value = row.backend == "cpu" ? cpu::choose_kernels(compute.isa).name : "";
  }
  return row;
}

/// A run, row by row: begun when it is made; what is measured stays when Ctrl-C ends it.
class Bench {
 public:
  Bench(const BenchOptions& options, const OpenModel& model, const Hooks& hooks)
      : options_(options),
        model_(model),
        hooks_(hooks),
        all_(combinations(options.grid)),
        workloads_(bench::workloads(options.prompts, options.generations, options.depths, options.sequences)),
        progress_(options.common.quiet) {
    if (workloads_.empty()) fail(ExitCode::usage, "nothing to measure: -p and -n are both 0");
    check_positions(workloads_, model);
    check_kernels(options, all_, workloads_);
    check_combinations(all_, options.grid, model);
    if (options.plot) AtomicFile::check(*options.plot);
    std::stable_sort(workloads_.begin(), workloads_.end(),
                     [](const auto& a, const auto& b) { return a.depth < b.depth; });
  }

  void measure() {
    run_ = {model_.name(), cpu_name(), {}, {}};
    for (std::size_t i = 0; i < bench_axes.size(); ++i) {
      const bool has_column =
          bench_axes[i].value == &ComputeOptions::dtype || bench_axes[i].value == &ComputeOptions::backend;
      if (!has_column && options_.grid.values[i].size() > 1) run_.varied.emplace_back(bench_axes[i].name);
    }
    if (options_.roofline) run_.rooflines = rooflines(all_, progress_.callback());
    const model::Weights stored = load_weights(model_, all_.front(), hooks_, progress_);
    writers_.push_back(make_bench_writer(options_.json ? "json" : options_.output, [](std::string_view text) {
      print(text);
      flush();
    }));
    if (options_.output_err != "none")
      writers_.push_back(make_bench_writer(options_.output_err, print_aside));
    for (const auto& writer : writers_) writer->begin(run_);
    std::optional<std::string> dtype;
    model::Weights weights;
    for (const ComputeOptions& compute : all_) {
      if (dtype != compute.dtype) {
        weights = {};
        weights = convert_weights(model_, compute, stored, progress_);
        dtype = compute.dtype;
      }
      measure(compute, weights);
    }
  }

  void end(bool complete) {
    for (const auto& writer : writers_) writer->end(complete);
    if (options_.plot && !rows_.empty()) {
      AtomicFile file(*options_.plot);
      file.write(bench_plot(run_, rows_));
      file.commit();
    }
  }

 private:
  void measure(const ComputeOptions& compute, const model::Weights& weights) {
    const auto backend = make_backend(model_, compute, weights, hooks_);
    BenchRow row = row_of(compute, *backend, weights);
    std::size_t context = 0;
    for (const bench::Workload& workload : workloads_) context = std::max(context, workload.positions());
    bench::Timeline timeline(*backend, context);
    if (options_.roofline) row.copy_rate = copy_rate(*backend);
    if (options_.kernels && on_processor(row.backend) && !model_.quiet) {
      notice(fmt::format("--kernels: backend {} has none", row.backend));
    }
    for (const bench::Workload& workload : workloads_) {
      const Progress report = progress_.callback();
      const std::string stage =
          fmt::format("{} {} {} threads {}", row.dtype, row.backend, row.threads, workload.name());
      bench::TimingOptions timing{options_.repetitions, !options_.no_warm_up, {}};
      timing.progress = [&](std::uint64_t done, std::uint64_t total) { report(stage, done, total); };
      row.workload = workload;
      row.samples.clear();
      for (const double seconds : timeline.measure(workload, timing))
        row.samples.push_back(row.tokens() / seconds);
      row.cost = bench::cost(workload, backend->config(), weights, backend->kv_position_bytes());
      row.limit.reset();
      for (const bench::Roofline& roofline : run_.rooflines) {
        if (on_processor(row.backend) && roofline.threads == row.threads) {
          const Instructions used = instructions_of(compute, row.dtype);
          row.limit = bench::limit(row.cost, roofline, used.arithmetic, used.products);
        }
      }
      // Of a card no more than its memory is measured, which is what bounds decoding.
      if (row.copy_rate && workload.kind == bench::Workload::Kind::decode) {
        row.limit = bench::Limit{row.cost.bytes / *row.copy_rate, bench::Bound::memory};
      }
      row.kernels.clear();
      if (options_.kernels && has_kernels(workload)) {
        row.kernels = timeline.time_kernels(workload, options_.repetitions);
      }
      progress_.erase();
      rows_.push_back(row);
      for (const auto& writer : writers_) writer->row(row);
    }
  }

  /// Measured for the first combination that a backend has.
  std::optional<double> copy_rate(const engine::Backend& backend) {
    const auto known = copy_rates_.find(backend.name());
    const double rate = known != copy_rates_.end() ? known->second : backend.copy_rate();
    copy_rates_.emplace(backend.name(), rate);
    return rate > 0 ? std::optional(rate) : std::nullopt;
  }

  const BenchOptions& options_;
  const OpenModel& model_;
  const Hooks& hooks_;
  std::vector<ComputeOptions> all_;
  std::vector<bench::Workload> workloads_;
  ProgressBar progress_;
  BenchRun run_;
  std::vector<std::unique_ptr<BenchWriter>> writers_;  // standard output's first
  std::vector<BenchRow> rows_;
  std::map<std::string, double, std::less<>> copy_rates_;  // by backend; 0: none
};

ExitCode run_bench(const BenchOptions& options, const Hooks& hooks) {
  const OpenModel model = open_model(options.common, {});
  const InterruptScope interrupt;
  Bench bench(options, model, hooks);
  try {
    bench.measure();
  } catch (const Error& error) {
    if (error.code() == ExitCode::interrupted) bench.end(false);
    throw;
  }
  bench.end(true);
  return ExitCode::ok;
}

}  // namespace

void add_bench(CommandLine& line) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App& command = *line.app.add_subcommand("bench", "How fast a model runs, and what limits it");
  command.footer(
      "A row is one test, as llama-bench names it: pp512 is a prompt of 512 tokens, tg128 are 128 tokens "
      "one\n"
      "after another, tg128x8 the same of 8 sequences at once, @d2048 is behind 2048 tokens that are not "
      "timed.\n"
      "Nothing but forward calls is timed. MB/t, GB/s and GFLOP/s are what a token needs at the least; limit "
      "is\n"
      "the median's share of what memory and arithmetic allow, as measured in the same run; of a CUDA card "
      "that\n"
      "is what its memory copies, and only of decoding. Flags with several values make every combination.\n\n"
      "Examples:\n"
      "  fs bench --model synthetic:qwen3-0.6b\n"
      "  fs bench -m synthetic:qwen3-0.6b --dtype bf16,q8_0,int4 -t 1,2 -d 0,2048\n"
      "  fs bench -m synthetic:qwen3-0.6b -p 0 -d 0,1024,4096 --plot decode.svg\n"
      "  fs bench -m synthetic:qwen3-0.6b -p 0 -np 1,4,8\n"
      "  fs bench -m synthetic:qwen3-0.6b -p 0 --backend cuda --kernels\n"
      "  fs bench -o jsonl -oe md > bench.jsonl\n");
  constexpr std::size_t any = std::numeric_limits<std::uint32_t>::max();
  add_counts(command, "-p,--n-prompt", options->prompts, 0, any,
             "Tokens of a prompt; 0: no such test. Default: 512");
  add_counts(command, "-n,--n-gen", options->generations, 0, any,
             "Tokens to decode; 0: no such test. Default: 128");
  add_counts(command, "-d,--n-depth", options->depths, 0, any, "Tokens that are there before. Default: 0");
  add_counts(command, "--parallel", options->sequences, 1, 1024,
             "Sequences that are decoded at once, also -np; their tokens count together. Default: 1");
  add_counts(command, "--np", options->sequences, 1, 1024, "-np (flags.h)")->group("");
  add_number<std::size_t>(command, "-r,--repetitions", options->repetitions, 1, 10000,
                          "Times that a test is repeated. Default: 5");
  command.add_flag("--no-warmup", options->no_warm_up, "Count the first run too");
  CLI::Option* on = command.add_flag(
      "--roofline", [options](std::int64_t) { options->roofline = true; },
      "Measure what this machine's memory and arithmetic allow (the default)");
  CLI::Option* off = command.add_flag(
      "--no-roofline", [options](std::int64_t) { options->roofline = false; }, "Do not");
  on->excludes(off);
  command.add_flag("--kernels", options->kernels, "Also time each kernel of a decode step by itself (cuda)");
  CLI::Option* output =
      add_choice(command, "-o,--output", options->output, bench_formats, "How rows are printed");
  std::vector<std::string> formats_err = bench_formats;
  formats_err.insert(formats_err.begin(), "none");
  add_choice(command, "--output-err", options->output_err, formats_err,
             "The same on standard error as well, also -oe");
  add_choice(command, "--oe", options->output_err, formats_err, "-oe (flags.h)")->group("");
  command.add_flag("--json", options->json, "One JSON object, as --output json")->excludes(output);
  add_file(command, "--plot", options->plot, "Also draw tokens a second against depth, as SVG");
  add_common(command, options->common);
  add_grid(command, options->grid);
  command.callback([&line, options] {
    line.use_less = "use a smaller model or lower -p, -n, -d or -np";
    line.action = [&line, options] { return run_bench(*options, line.hooks); };
  });
}

}  // namespace fs::cli

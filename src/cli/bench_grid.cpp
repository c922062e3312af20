#include "cli/bench_grid.h"

#include <fmt/ranges.h>

#include "cli/flags.h"

namespace fs::cli {

const std::vector<BenchAxis> bench_axes = {
    {"dtype", &ComputeOptions::dtype, dtype_choices, "Formats of the weights in memory"},
    {"backend", &ComputeOptions::backend, backend_choices, "What computes"},
    {"isa", &ComputeOptions::isa, isa_choices, "Instruction sets of the cpu backend"},
    {"kv", &ComputeOptions::kv, kv_choices, "Formats of keys and values in the cache"},
    {"act", &ComputeOptions::act, act_choices, "What activations are rounded to in products"},
    {"step", &ComputeOptions::step, step_choices, "How cuda runs a decode step"},
};

CLI::Option* add_counts(CLI::App& command, const std::string& names, std::vector<std::size_t>& values,
                        std::size_t lowest, std::size_t highest, const std::string& help) {
  const std::string flag = verbatim(names.substr(0, names.find(',')));  // -np is declared as --np
  const auto read = [&values, flag, lowest, highest](const CLI::results_t& results) {
    values.clear();
    const std::string list = verbatim(results.back());
    for (const std::string_view item : split_list(list, flag)) {
      values.push_back(parse_number<std::size_t>(item, flag, lowest, highest));
    }
    return true;
  };
  return command.add_option(names, read, help)->type_name("N,…")->expected(1);
}

CLI::Option* add_choices(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                         const std::vector<std::string>& choices, const std::string& help) {
  const auto read = [&values, name, choices](const CLI::results_t& results) {
    values.clear();
    const std::string list = verbatim(results.back());
    for (const std::string_view item : split_list(list, name)) {
      check_choice(item, name, choices);
      values.emplace_back(item);
    }
    return true;
  };
  return command.add_option(name, read, fmt::format("{}: {}", help, fmt::join(choices, ", ")))
      ->type_name("NAME,…")
      ->expected(1);
}

void add_grid(CLI::App& command, BenchGrid& grid) {
  const ComputeOptions defaults;
  grid.values.clear();
  for (const BenchAxis& axis : bench_axes) grid.values.push_back({defaults.*axis.value});
  for (std::size_t i = 0; i < bench_axes.size(); ++i) {
    const BenchAxis& axis = bench_axes[i];
    add_choices(command, std::string("--") + axis.name, grid.values[i], axis.choices, axis.help);
  }
  grid.threads = {defaults.threads};
  add_counts(command, "--threads,-t", grid.threads, 1, most_threads,
             "Processor threads. Default: one for each processor");
  add_device(command, grid.others);
}

std::vector<ComputeOptions> combinations(const BenchGrid& grid) {
  std::vector<ComputeOptions> all = {grid.others};
  for (std::size_t i = 0; i < bench_axes.size(); ++i) {
    std::vector<ComputeOptions> longer;
    for (const ComputeOptions& options : all) {
      for (const std::string& value : grid.values[i]) {
        longer.push_back(options);
        longer.back().*bench_axes[i].value = value;
      }
    }
    all = std::move(longer);
  }
  std::vector<ComputeOptions> with_threads;
  for (const ComputeOptions& options : all) {
    for (const std::size_t threads : grid.threads) {
      with_threads.push_back(options);
      with_threads.back().threads = threads;
    }
  }
  return with_threads;
}

}  // namespace fs::cli

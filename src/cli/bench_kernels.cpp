#include <fmt/format.h>

#include <string>
#include <string_view>

#include "cli/bench_report.h"

namespace fs::cli {
namespace {

/// One line of the table: a kernel, or all of them.
struct KernelLine {
  std::string_view name;
  std::size_t launches = 0;
  double seconds = 0, bytes = 0;

  double rate() const { return bytes / seconds; }
  std::optional<double> limit_share(const BenchRow& row) const {
    return row.copy_rate ? std::optional(rate() / *row.copy_rate) : std::nullopt;
  }
};

/// Of the median repetition.
KernelLine line_of(const engine::KernelTime& kernel) {
  return {kernel.name, kernel.launches, bench::summarize(kernel.seconds).median, kernel.bytes};
}

KernelLine sum_of(const BenchRow& row) {
  KernelLine sum{"all"};
  for (const engine::KernelTime& kernel : row.kernels) {
    const KernelLine line = line_of(kernel);
    sum.launches += line.launches;
    sum.seconds += line.seconds;
    sum.bytes += line.bytes;
  }
  return sum;
}

/// "tg128@d2048, q8_0, cuda, kv f32, step graph".
std::string row_name(const BenchRow& row) {
  std::string text = fmt::format("{}, {}, {}", row.workload.name(), row.dtype, row.backend);
  for (const auto& [flag, value] : row.choices) {
    if (!value.empty()) text += fmt::format(", {} {}", flag, value);
  }
  return text;
}

}  // namespace

std::string kernel_table(const BenchRow& row) {
  const KernelLine sum = sum_of(row);
  std::string text = fmt::format("{}: {:.1f} µs a step\n\n", row_name(row), 1e6 / row.summary().median);
  text += fmt::format("| {:<16} | {:>8} | {:>9} | {:>5} | {:>9} | {:>7} | {:>5} |\n", "kernel", "launches",
                      "µs a step", "of it", "MB a step", "GB/s", "limit");
  text += fmt::format("|{:-<18}|{:-<9}:|{:-<10}:|{:-<6}:|{:-<10}:|{:-<8}:|{:-<6}:|\n", "", "", "", "", "", "",
                      "");
  const auto add = [&](const KernelLine& line) {
    const auto share = line.limit_share(row);
    text +=
        fmt::format("| {:<16} | {:>8} | {:>9.1f} | {:>3.0f} % | {:>9.3f} | {:>7.1f} | {:>5} |\n", line.name,
                    line.launches, 1e6 * line.seconds, 100 * line.seconds / sum.seconds, line.bytes / 1e6,
                    line.rate() / 1e9, share ? fmt::format("{:.0f} %", 100 * *share) : "-");
  };
  for (const engine::KernelTime& kernel : row.kernels) add(line_of(kernel));
  add(sum);
  return text;
}

Json kernels_json(const BenchRow& row) {
  Json list = Json::array();
  for (const engine::KernelTime& kernel : row.kernels) {
    const KernelLine line = line_of(kernel);
    const auto share = line.limit_share(row);
    list.push_back({{"kernel", kernel.name},
                    {"launches", kernel.launches},
                    {"seconds", line.seconds},
                    {"bytes", kernel.bytes},
                    {"bytes_per_second", line.rate()},
                    {"limit_share", share ? Json(*share) : Json()},
                    {"samples_seconds", kernel.seconds}});
  }
  return list;
}

}  // namespace fs::cli

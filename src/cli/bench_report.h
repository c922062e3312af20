#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/roofline.h"
#include "bench/statistics.h"
#include "bench/workload.h"
#include "cli/json_output.h"
#include "engine/backend.h"

/// What `fs bench` says: rows as they are measured, in one of llama-bench's formats.
namespace fs::cli {

/// What all rows have in common.
struct BenchRun {
  std::string model;                       ///< as the user named it
  std::string cpu;                         ///< the processor's name for itself
  std::vector<bench::Roofline> rooflines;  ///< one for each number of threads; empty with --no-roofline
  std::vector<std::string>
      varied;  ///< flags, other than dtype and backend, with several values: a table shows them
};

/// One workload on one backend.
struct BenchRow {
  std::string dtype;    ///< of the layers' matrices as they lie in memory: "q8_0"
  std::string backend;  ///< which one it was, "auto" resolved
  std::size_t threads = 0;
  std::vector<std::pair<std::string, std::string>> choices;  ///< the other flags of the grid: ("isa", "avx2")
  bench::Workload workload;
  std::vector<double> samples;        ///< tokens a second, of every repetition
  bench::Cost cost;                   ///< of one repetition
  std::optional<bench::Limit> limit;  ///< nothing where no roofline was measured for this backend
  std::optional<double> copy_rate;    ///< bytes a second of the device's memory; nothing for the processor's
  std::vector<engine::KernelTime> kernels;  ///< of a step behind the workload's depth; with --kernels

  bench::Summary summary() const { return bench::summarize(samples); }
  double tokens() const { return static_cast<double>(workload.all_tokens()); }
  /// Of the median repetition.
  double bytes_per_second() const { return cost.bytes / tokens() * summary().median; }
  double flops_per_second() const { return cost.flops / tokens() * summary().median; }
  /// Tokens a second that nothing could exceed; and the median's share of it.
  std::optional<double> limit_rate() const;
  std::optional<double> limit_share() const;
};

/// Where a writer's text goes, whole lines at once.
using Sink = std::function<void(std::string_view text)>;

/// Gives a sink row by row where the format allows.
class BenchWriter {
 public:
  virtual ~BenchWriter() = default;
  virtual void begin(const BenchRun& run) = 0;
  virtual void row(const BenchRow& row) = 0;
  /// Also called, with `complete` false, when Ctrl-C ended the run early.
  virtual void end(bool complete) = 0;
};

extern const std::vector<std::string> bench_formats;  ///< md, csv, json, jsonl
std::unique_ptr<BenchWriter> make_bench_writer(const std::string& format, Sink sink);

/// A Markdown table of a row's kernels.
std::string kernel_table(const BenchRow& row);
Json kernels_json(const BenchRow& row);

/// Tokens a second against depth as an SVG picture: decoding and prefill, a line for each configuration, its
/// limit dashed.
std::string bench_plot(const BenchRun& run, const std::vector<BenchRow>& rows);

/// A rate with four figures or so: 1234, 123.4, 12.34.
std::string rate_text(double rate);

}  // namespace fs::cli

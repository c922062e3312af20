#include "cli/bench_report.h"

#include <algorithm>
#include <utility>

#include "cli/version.h"

namespace fs::cli {
namespace {

using bench::Arithmetic;
using bench::Bound;

std::string_view name(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::bf16:
      return "bf16";
    case Arithmetic::int8:
      return "int8";
    case Arithmetic::fp32:
      break;
  }
  return "fp32";
}

/// The last part of a path or of a name, cut to what a column holds: "qwen3-0.6b" of synthetic:qwen3-0.6b.
std::string short_name(std::string model, std::size_t width) {
  while (!model.empty() && model.back() == '/') model.pop_back();
  const std::size_t end = model.find_last_of("/:");
  if (end != std::string::npos) model.erase(0, end + 1);
  return model.substr(0, width);
}

/// "2 threads read 21.3 GB/s (median 20.9); fp32 142 GFLOP/s (avx2 fma), int8 282 GOP/s (avx2 maddubs)".
std::string roofline_text(const bench::Roofline& roofline) {
  std::string text =
      fmt::format("{} thread{} read {:.1f} GB/s (median {:.1f})", roofline.threads,
                  roofline.threads == 1 ? "" : "s", roofline.read_best / 1e9, roofline.read_median / 1e9);
  for (const bench::Peak& peak : roofline.peaks) {
    text += fmt::format(", {} {:.0f} {}/s ({})", name(peak.arithmetic), peak.best / 1e9,
                        peak.arithmetic == Arithmetic::int8 ? "GOP" : "GFLOP", peak.instructions);
  }
  return text;
}

/// A Markdown table, in columns for the eye as well: a row is at most 120 characters unless flags are varied.
class Table final : public BenchWriter {
 public:
  explicit Table(Sink sink) : sink_(std::move(sink)) {}
  void begin(const BenchRun& run) override {
    model_ = short_name(run.model, 12);
    varied_ = run.varied;
    std::string head = fmt::format("{} · {} · {}\n", build_text(), run.cpu, run.model);
    for (const bench::Roofline& roofline : run.rooflines) head += roofline_text(roofline) + "\n";
    std::vector<std::string> titles = {"model", "dtype", "backend"};
    titles.insert(titles.end(), varied_.begin(), varied_.end());
    for (const char* title : {"threads", "test", "t/s", "median", "MB/t", "GB/s", "GFLOP/s", "limit"}) {
      titles.emplace_back(title);
    }
    std::string rule = "|";
    for (std::size_t i = 0; i < titles.size(); ++i) {
      rule += fmt::format("{:-<{}}{}|", "", width(i) + 1, is_text(i) ? "-" : ":");
    }
    sink_(head + "\n" + line(titles) + rule + "\n");
  }

  void row(const BenchRow& row) override {
    const bench::Summary summary = row.summary();
    std::vector<std::string> cells = {model_, row.dtype, row.backend};
    for (const std::string& flag : varied_) {
      const auto found = std::find_if(row.choices.begin(), row.choices.end(),
                                      [&](const auto& choice) { return choice.first == flag; });
      cells.push_back(found == row.choices.end() ? "" : found->second);
    }
    cells.push_back(std::to_string(row.threads));
    cells.push_back(row.workload.name());
    cells.push_back(fmt::format("{} ± {}", rate_text(summary.mean), rate_text(summary.deviation)));
    cells.push_back(rate_text(summary.median));
    cells.push_back(rate_text(row.cost.bytes / row.tokens() / 1e6));
    cells.push_back(rate_text(row.bytes_per_second() / 1e9));
    cells.push_back(rate_text(row.flops_per_second() / 1e9));
    const auto share = row.limit_share();
    cells.push_back(share ? fmt::format("{:.0f} %", 100 * *share) : "-");
    sink_(line(cells));
    if (row.copy_rate && rates_.find(row.backend + ": ") == std::string::npos) {
      rates_ += fmt::format("\n{}: memory copies {:.1f} GB/s, what is read and what is written counted\n",
                            row.backend, *row.copy_rate / 1e9);
    }
    if (!row.kernels.empty()) kernels_ += "\n" + kernel_table(row);
  }

  void end(bool) override { sink_(rates_ + kernels_); }

 private:
  bool is_text(std::size_t column) const {
    return column < 3 + varied_.size() || column == 4 + varied_.size();
  }
  std::size_t width(std::size_t column) const {
    constexpr std::size_t before[] = {12, 5, 7}, after[] = {7, 11, 15, 6, 5, 5, 7, 5};
    if (column == 0) return std::max<std::size_t>(model_.size(), 5);
    if (column < 3) return before[column];
    return column < 3 + varied_.size() ? 8 : after[column - 3 - varied_.size()];
  }
  std::string line(const std::vector<std::string>& cells) const {
    std::string text = "|";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      text += is_text(i) ? fmt::format(" {:<{}} |", cells[i], width(i))
                         : fmt::format(" {:>{}} |", cells[i], width(i));
    }
    return text + "\n";
  }

  Sink sink_;
  std::string model_;
  std::vector<std::string> varied_;
  std::string rates_, kernels_;  // lines and tables that follow the rows
};

Json as_json(const bench::Roofline& roofline) {
  Json peaks = Json::array();
  for (const bench::Peak& peak : roofline.peaks) {
    peaks.push_back({{"arithmetic", name(peak.arithmetic)},
                     {"instructions", peak.instructions},
                     {"operations_per_second", peak.best},
                     {"median", peak.median}});
  }
  return {{"threads", roofline.threads},
          {"read_bytes_per_second", roofline.read_best},
          {"read_median", roofline.read_median},
          {"peaks", std::move(peaks)}};
}

Json head_json(const BenchRun& run) {
  return {{"build", build_text()}, {"cpu", run.cpu}, {"model", run.model}};
}

/// All that is known of a row; null where there is no limit.
Json as_json(const BenchRow& row) {
  const bench::Summary summary = row.summary();
  Json json = {{"dtype", row.dtype}, {"backend", row.backend}};
  for (const auto& [flag, value] : row.choices) json[flag] = value;
  json.update({{"threads", row.threads},
               {"test", row.workload.name()},
               {"n_prompt", row.workload.kind == bench::Workload::Kind::prefill ? row.workload.tokens : 0},
               {"n_gen", row.workload.kind == bench::Workload::Kind::decode ? row.workload.tokens : 0},
               {"n_depth", row.workload.depth},
               {"n_parallel", row.workload.sequences},
               {"avg_ts", summary.mean},
               {"stddev_ts", summary.deviation},
               {"median_ts", summary.median},
               {"bytes_per_token", row.cost.bytes / row.tokens()},
               {"flops_per_token", row.cost.flops / row.tokens()},
               {"bytes_per_second", row.bytes_per_second()},
               {"flops_per_second", row.flops_per_second()}});
  const auto rate = row.limit_rate(), share = row.limit_share();
  json["limit_ts"] = rate ? Json(*rate) : Json();
  json["limit_share"] = share ? Json(*share) : Json();
  json["limited_by"] = row.limit ? Json(row.limit->bound == Bound::memory ? "memory" : "arithmetic") : Json();
  json["samples_ts"] = row.samples;
  json["copy_bytes_per_second"] = row.copy_rate ? Json(*row.copy_rate) : Json();
  if (!row.kernels.empty()) json["kernels"] = kernels_json(row);
  return json;
}

class JsonWriter final : public BenchWriter {
 public:
  explicit JsonWriter(Sink sink) : sink_(std::move(sink)) {}
  void begin(const BenchRun& run) override {
    document_ = head_json(run);
    document_["rooflines"] = Json::array();
    for (const bench::Roofline& roofline : run.rooflines) document_["rooflines"].push_back(as_json(roofline));
    document_["results"] = Json::array();
  }
  void row(const BenchRow& row) override { document_["results"].push_back(as_json(row)); }
  void end(bool complete) override {
    document_["complete"] = complete;
    sink_(json_line(document_));
  }

 private:
  Sink sink_;
  Json document_;
};

/// Rows that stand for themselves: each has what the run has in common, and the roofline of its threads.
Json whole_row(const BenchRun& run, const BenchRow& row) {
  Json json = head_json(run);
  json.update(as_json(row));
  const auto roofline =
      std::find_if(run.rooflines.begin(), run.rooflines.end(),
                   [&](const bench::Roofline& found) { return found.threads == row.threads; });
  json["roofline"] = roofline == run.rooflines.end() ? Json() : as_json(*roofline);
  return json;
}

class JsonLines final : public BenchWriter {
 public:
  explicit JsonLines(Sink sink) : sink_(std::move(sink)) {}
  void begin(const BenchRun& run) override { run_ = run; }
  void row(const BenchRow& row) override { sink_(json_line(whole_row(run_, row))); }
  void end(bool) override {}

 private:
  Sink sink_;
  BenchRun run_;
};

/// RFC 4180, every value of JSON Lines in a column: lists with blanks between, a roofline's figures in
/// columns of their own.
class Csv final : public BenchWriter {
 public:
  explicit Csv(Sink sink) : sink_(std::move(sink)) {}
  void begin(const BenchRun& run) override { run_ = run; }
  void row(const BenchRow& row) override {
    Json flat;
    const Json whole = whole_row(run_, row);
    for (const auto& [key, value] : whole.items()) {
      if (key != "roofline") flat[key] = value;
    }
    const Json roofline = whole["roofline"];
    flat["roofline_read"] = roofline.is_null() ? Json() : roofline["read_bytes_per_second"];
    for (const char* arithmetic : {"fp32", "bf16", "int8"}) {
      Json& cell = flat[fmt::format("roofline_{}", arithmetic)];
      if (roofline.is_null()) continue;
      for (const Json& peak : roofline["peaks"]) {
        if (peak["arithmetic"] == arithmetic) cell = peak["operations_per_second"];
      }
    }
    const std::string titles = line(flat, [](const std::string& key, const Json&) { return key; });
    const std::string values = line(flat, [](const std::string&, const Json& value) {
      if (value.is_null()) return std::string();
      if (value.is_string()) return value.get<std::string>();
      if (!value.is_array()) return value.dump();
      std::string list;
      for (const Json& item : value) list += (list.empty() ? "" : " ") + item.dump();
      return list;
    });
    sink_(first_ ? titles + values : values);
    first_ = false;
  }
  void end(bool) override {}

 private:
  template <class Text>
  static std::string line(const Json& row, const Text& text) {
    std::string cells;
    for (const auto& [key, value] : row.items())
      cells += (cells.empty() ? "" : ",") + quoted(text(key, value));
    return cells + "\n";
  }
  static std::string quoted(const std::string& cell) {
    if (cell.find_first_of(",\"\n\r") == std::string::npos) return cell;
    std::string escaped = "\"";
    for (const char c : cell) escaped += c == '"' ? "\"\"" : std::string(1, c);
    return escaped + "\"";
  }

  Sink sink_;
  BenchRun run_;
  bool first_ = true;
};

}  // namespace

const std::vector<std::string> bench_formats = {"md", "csv", "json", "jsonl"};

std::optional<double> BenchRow::limit_rate() const {
  if (!limit) return std::nullopt;
  return tokens() / limit->seconds;
}

std::optional<double> BenchRow::limit_share() const {
  if (!limit) return std::nullopt;
  return summary().median / *limit_rate();
}

std::string rate_text(double rate) {
  return rate >= 999.95   ? fmt::format("{:.0f}", rate)
         : rate >= 99.995 ? fmt::format("{:.1f}", rate)
                          : fmt::format("{:.2f}", rate);
}

std::unique_ptr<BenchWriter> make_bench_writer(const std::string& format, Sink sink) {
  if (format == "csv") return std::make_unique<Csv>(std::move(sink));
  if (format == "json") return std::make_unique<JsonWriter>(std::move(sink));
  if (format == "jsonl") return std::make_unique<JsonLines>(std::move(sink));
  return std::make_unique<Table>(std::move(sink));
}

}  // namespace fs::cli

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "cli/bench_report.h"

namespace fs::cli {
namespace {

using bench::Workload;

constexpr double page_width = 760, panel_height = 300, margin_left = 64, margin_right = 240,
                 title_height = 56, between = 64;

std::string escaped(std::string_view words) {
  std::string text;
  for (const char c : words) {
    text += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return text;
}

std::string label(double x, double y, std::string_view anchor, std::string_view words, int size = 12,
                  std::string_view fill = "#333333") {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n", x, y,
      anchor, size, fill, escaped(words));
}

/// The rows of one configuration and test, over its depths.
struct Line {
  std::string name;  ///< "q8_0 cpu, 2 threads, tg128"
  std::vector<const BenchRow*> rows;
};

std::vector<Line> lines_of(const std::vector<BenchRow>& rows, Workload::Kind kind) {
  std::vector<Line> lines;
  for (const BenchRow& row : rows) {
    if (row.workload.kind != kind) continue;
    Workload shallow = row.workload;
    shallow.depth = 0;
    std::string name = fmt::format("{} {} t{} {}", row.dtype, row.backend, row.threads, shallow.name());
    for (const auto& [flag, value] : row.choices) name += value.empty() || value == "auto" ? "" : " " + value;
    const auto found =
        std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return line.name == name; });
    if (found == lines.end()) {
      lines.push_back({name, {&row}});
    } else {
      found->rows.push_back(&row);
    }
  }
  return lines;
}

/// 1, 2 or 5 times a power of ten: of steps that cut [0, highest] into five or so.
double step_for(double highest) {
  const double power = std::pow(10, std::floor(std::log10(highest / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power * 5 >= highest) return factor * power;
  }
  return 10 * power;
}

/// One panel, its upper edge at `y`.
std::string panel(const std::vector<Line>& lines, std::string_view title, double y) {
  static constexpr std::array<const char*, 8> colours = {"#1f6fb2", "#c4511f", "#2e8b57", "#8250a8",
                                                         "#b0306a", "#5f6b73", "#a07d00", "#00838f"};
  double deepest = 0, fastest = 0;
  for (const Line& line : lines) {
    for (const BenchRow* row : line.rows) {
      deepest = std::max(deepest, static_cast<double>(row->workload.depth));
      fastest = std::max({fastest, row->summary().median, row->limit_rate().value_or(0)});
    }
  }
  if (deepest == 0) deepest = 1;
  fastest *= 1.05;
  const double bottom = y + panel_height, span = page_width - margin_left - margin_right;
  const auto x_of = [&](const BenchRow& row) {
    return margin_left + static_cast<double>(row.workload.depth) / deepest * span;
  };
  const auto y_of = [&](double rate) { return bottom - rate / fastest * panel_height; };

  std::string text = label(margin_left, y - 12, "start", title, 13, "#111111");
  for (double rate = 0, step = step_for(fastest); rate <= fastest; rate += step) {
    text += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>\n",
                        margin_left, page_width - margin_right, y_of(rate));
    text += label(margin_left - 8, y_of(rate) + 4, "end", fmt::format("{:g}", rate), 11);
  }
  std::vector<double> depths;
  double legend = y + 8;
  bool has_limits = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const char* const colour = colours[i % colours.size()];
    std::string measured, limits;
    for (const BenchRow* row : lines[i].rows) {
      measured += fmt::format("{:.1f},{:.1f} ", x_of(*row), y_of(row->summary().median));
      if (const auto limit = row->limit_rate())
        limits += fmt::format("{:.1f},{:.1f} ", x_of(*row), y_of(*limit));
      text += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x_of(*row),
                          y_of(row->summary().median), colour);
      depths.push_back(static_cast<double>(row->workload.depth));
    }
    text += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                        measured, colour);
    if (!limits.empty()) {
      has_limits = true;
      text += fmt::format(
          "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" stroke-dasharray=\"6 "
          "4\"/>\n",
          limits, colour);
    }
    text += label(page_width - margin_right + 16, legend, "start", lines[i].name, 12, colour);
    legend += 18;
  }
  if (has_limits) text += label(page_width - margin_right + 16, legend, "start", "dashed: the limit", 11);
  std::sort(depths.begin(), depths.end());
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  for (const double depth : depths) {
    text +=
        label(margin_left + depth / deepest * span, bottom + 18, "middle", fmt::format("{:g}", depth), 11);
  }
  return text + label(margin_left + span / 2, bottom + 36, "middle", "depth (tokens)", 11);
}

}  // namespace

std::string bench_plot(const BenchRun& run, const std::vector<BenchRow>& rows) {
  const std::vector<Line> decode = lines_of(rows, Workload::Kind::decode);
  const std::vector<Line> prefill = lines_of(rows, Workload::Kind::prefill);
  const double panels = static_cast<double>(!decode.empty()) + static_cast<double>(!prefill.empty());
  const double height = title_height + panels * (panel_height + between);
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"#ffffff\"/>\n",
      page_width, height);
  text += label(16, 24, "start", fmt::format("{} on {}", run.model, run.cpu), 14, "#111111");
  double y = title_height;
  for (const auto& [lines, title] :
       {std::pair(&decode, "decode, tokens/s (median)"), std::pair(&prefill, "prefill, tokens/s (median)")}) {
    if (lines->empty()) continue;
    text += panel(*lines, title, y);
    y += panel_height + between;
  }
  return text + "</svg>\n";
}

}  // namespace fs::cli

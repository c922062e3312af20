#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "cli/diff_report.h"
#include "text/utf8.h"

namespace fs::cli {

using engine::TapDiff;
using engine::TapPoint;

std::string heat_map(const DiffReport& report, const std::string& title) {
  constexpr std::size_t cell_width = 84, cell_height = 24, left = 92, top = 76, legend = 84;
  // A share's colour: white at a millionth, green at a hundredth, yellow at a half, red from the whole
  // tolerance on.
  const auto colour = [](double share) -> std::string {
    if (!(share <= 1)) return share <= 10 ? "#e5533d" : "#9b1c1c";
    const double depth = std::clamp((std::log10(std::max(share, 1e-6)) + 6) / 6, 0.0, 1.0);
    const auto mix = [&](double from, double to) { return static_cast<int>(from + (to - from) * depth); };
    return share > 0.5 ? "#f2c94c"
                       : fmt::format("#{:02x}{:02x}{:02x}", mix(250, 112), mix(252, 186), mix(250, 126));
  };
  const auto ink = [](double share) { return share <= 1 ? "#1d2a22" : "#ffffff"; };
  std::vector<std::size_t> layers;
  for (std::size_t layer = 0; layer < report.n_layers(); ++layer) {
    for (const TapPoint point : layer_points) {
      if (report.find(point, layer) != nullptr && (layers.empty() || layers.back() != layer))
        layers.push_back(layer);
    }
  }
  const std::size_t width = left + layer_points.size() * cell_width + 24;
  const std::size_t height = top + (layers.size() + 2) * cell_height + legend;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      width, height);
  const auto label = [&](std::size_t x, std::size_t y, std::string_view anchor, std::string_view words,
                         int size = 12, std::string_view fill = "#333333") {
    std::string escaped;
    for (const char c : text::lossy_utf8(words).text) {
      escaped += c == '<'   ? "&lt;"
                 : c == '>' ? "&gt;"
                 : c == '&' ? "&amp;"
                 : c == '"' ? "&quot;"
                            : std::string(1, c);
    }
    text += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n",
                        x, y, anchor, size, fill, escaped);
  };
  const auto cell = [&](std::size_t x, std::size_t y, const TapDiff& found) {
    const double share = found.share();
    text +=
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\"/>\n",
                    x, y, cell_width, cell_height, colour(share));
    label(x + cell_width / 2, y + 16, "middle", share_text(share), 11, ink(share));
  };
  label(16, 24, "start", title, 14, "#111111");
  label(16, 44, "start", report.verdict(false), 11);
  for (std::size_t i = 0; i < layer_points.size(); ++i) {
    label(left + i * cell_width + cell_width / 2, top - 8, "middle", name(layer_points[i]));
  }
  std::size_t y = top;
  for (const std::size_t layer : layers) {
    label(left - 10, y + 16, "end", fmt::format("layer {}", layer));
    for (std::size_t i = 0; i < layer_points.size(); ++i) {
      if (const TapDiff* found = report.find(layer_points[i], layer)) cell(left + i * cell_width, y, *found);
    }
    y += cell_height;
  }
  y += 12;
  std::size_t x = left;
  for (const TapPoint point : {TapPoint::embed, TapPoint::final_norm, TapPoint::logits}) {
    const TapDiff* found = report.find(point, 0);
    if (found == nullptr) continue;
    label(x + cell_width - 10, y + 16, "end", name(point));
    cell(x + cell_width, y, *found);
    x += 3 * cell_width;
  }
  y += cell_height + 24;
  x = left;
  constexpr std::array<std::pair<double, const char*>, 7> steps = {{{1e-6, "≤ 1e-6"},
                                                                    {1e-4, "1e-4"},
                                                                    {0.01, "1 %"},
                                                                    {0.3, "30 %"},
                                                                    {0.8, "> 50 %"},
                                                                    {5, "> 1×"},
                                                                    {50, "> 10×"}}};
  label(left - 10, y + 14, "end", "share of");
  label(left - 10, y + 28, "end", "tolerance");
  for (const auto& [share, words] : steps) {
    text +=
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"56\" height=\"14\" fill=\"{}\" stroke=\"#cccccc\"/>\n",
                    x, y + 4, colour(share));
    label(x + 28, y + 32, "middle", words, 11);
    x += 70;
  }
  return text + "</svg>\n";
}

}  // namespace fs::cli

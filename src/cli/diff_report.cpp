#include "cli/diff_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace fs::cli {
namespace {

using engine::TapDiff;
using engine::TapPoint;

constexpr std::array layer_points = {TapPoint::attn_norm, TapPoint::q,        TapPoint::k,
                                     TapPoint::v,         TapPoint::attn_out, TapPoint::attn_resid,
                                     TapPoint::mlp_norm,  TapPoint::mlp_act,  TapPoint::block_out};
constexpr std::array outer_points = {TapPoint::embed, TapPoint::final_norm, TapPoint::logits};

/// "1050" → "1,050".
std::string grouped(double whole) {
  std::string digits = fmt::format("{:.0f}", whole);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

/// "layer 3 mlp_act".
std::string tap_text(const TapDiff& diff) {
  return engine::per_layer(diff.point) ? fmt::format("layer {} {}", diff.layer, name(diff.point))
                                       : std::string(name(diff.point));
}

/// "token 2, head 1, channel 19": the token counts from the start of the context.
std::string place_text(const TapDiff& diff, const engine::ElementDiff& element) {
  return fmt::format("token {}, {}channel {}", diff.first_position + element.row,
                     diff.heads > 1 ? fmt::format("head {}, ", element.head) : "", element.channel);
}

std::string difference_text(const TapDiff& diff, const std::string& where) {
  const auto& worst = diff.worst.front();
  return fmt::format("{}{}, {}: {:.6g} vs {:.6g} ({} tolerance)", where.empty() ? "" : where + ", ",
                     tap_text(diff), place_text(diff, worst), worst.a, worst.b, share_text(worst.share));
}

/// Infinity and NaN have no JSON number.
Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

/// Green to half the tolerance, yellow to the whole of it, red beyond.
std::string coloured(const std::string& cell, double share, bool colour) {
  if (!colour) return cell;
  return fmt::format("\x1b[{}m{}\x1b[0m", share > 1 ? "1;31" : share > 0.5 ? "33" : "32", cell);
}

}  // namespace

std::string share_text(double share) {
  if (!std::isfinite(share)) return "∞×";
  if (share == 0) return "0";
  if (share >= 100) return grouped(share) + "×";
  if (share > 1) return fmt::format("{:.1f}×", share);
  return share < 0.001 ? "<0.1 %" : fmt::format("{:.1f} %", 100 * share);
}

DiffReport::Key DiffReport::key(TapPoint point, std::size_t layer) const {
  return {per_layer(point) ? 1 + layer : point == TapPoint::embed ? 0 : 1 + n_layers_, point};
}

const DiffReport::Row* DiffReport::row(TapPoint point, std::size_t layer) const {
  const auto found = rows_.find(key(point, layer));
  return found == rows_.end() ? nullptr : &found->second;
}

const DiffReport::Row& DiffReport::worst() const {
  return std::max_element(
             rows_.begin(), rows_.end(),
             [](const auto& a, const auto& b) { return a.second.diff.share() < b.second.diff.share(); })
      ->second;
}

void DiffReport::add(const TapDiff& diff, const std::string& where) {
  if (!first_ && !diff.within()) first_.emplace(diff, where);
  Row& row = rows_[key(diff.point, diff.layer)];
  const TapDiff before = row.diff;
  const bool worse = row.passes++ == 0 || diff.share() > before.share();
  if (worse) {
    row.diff = diff;
    row.where = where;
  }
  if (row.passes == 1) return;
  row.diff.max_abs = std::max(before.max_abs, diff.max_abs);
  row.diff.relative_l2 = std::max(before.relative_l2, diff.relative_l2);
  row.diff.cosine = std::min(before.cosine, diff.cosine);
  row.diff.not_finite_a = before.not_finite_a + diff.not_finite_a;
  row.diff.not_finite_b = before.not_finite_b + diff.not_finite_b;
}

std::string DiffReport::table(bool colour) const {
  constexpr std::size_t width = 11;
  const auto cell = [&](const Row* row) {
    if (row == nullptr) return fmt::format("{:>{}}", "-", width);
    return coloured(fmt::format("{:>{}}", share_text(row->diff.share()), width), row->diff.share(), colour);
  };
  std::string text = "     layer";
  for (const TapPoint point : layer_points) text += fmt::format("{:>{}}", name(point), width);
  text += '\n';
  const auto outer = [&](TapPoint point) {
    if (const Row* found = row(point, 0)) text += fmt::format("{:>10}{}\n", name(point), cell(found));
  };
  outer(TapPoint::embed);
  for (std::size_t layer = 0; layer < n_layers_; ++layer) {
    const auto has = [&](TapPoint point) { return row(point, layer) != nullptr; };
    if (std::none_of(layer_points.begin(), layer_points.end(), has)) continue;
    text += fmt::format("{:>10}", layer);
    for (const TapPoint point : layer_points) text += cell(row(point, layer));
    text += '\n';
  }
  outer(TapPoint::final_norm);
  outer(TapPoint::logits);
  return text;
}

std::string DiffReport::elements(bool all) const {
  std::string text;
  for (const auto& [key, row] : rows_) {
    if (row.diff.within()) continue;
    const TapDiff& diff = row.diff;
    text += fmt::format("{}{} [{}, {}, {}]: max |b−a| {:.3g} · relative L2 {:.3g} · cosine {:.9f}",
                        tap_text(diff), row.where.empty() ? "" : " (" + row.where + ")", diff.rows,
                        diff.heads, diff.width, diff.max_abs, diff.relative_l2, diff.cosine);
    if (diff.not_finite_a + diff.not_finite_b > 0) {
      text += fmt::format(" · not finite: a {}, b {}", diff.not_finite_a, diff.not_finite_b);
    }
    text += '\n';
    for (const auto& element : diff.worst) {
      if (element.share <= 1) break;
      text += fmt::format("  {:<36} a {:<14.8g} b {:<14.8g} {}\n", place_text(diff, element), element.a,
                          element.b, share_text(element.share));
    }
    if (!all) break;
  }
  return text;
}

std::string DiffReport::verdict(bool injected) const {
  const Row& most = worst();
  if (within()) {
    return fmt::format("within tolerance: worst {}", difference_text(most.diff, most.where));
  }
  std::string text = fmt::format("first difference: {}", difference_text(first_->first, first_->second));
  if (injected) text += fmt::format(" · adds most: {}", difference_text(most.diff, most.where));
  return text;
}

Json DiffReport::element_json(const TapDiff& diff, const engine::ElementDiff& element) const {
  return {{"token", diff.first_position + element.row},
          {"head", element.head},
          {"channel", element.channel},
          {"a", finite_or_null(element.a)},
          {"b", finite_or_null(element.b)},
          {"share", finite_or_null(element.share)}};
}

Json DiffReport::json(bool injected) const {
  const auto tap_json = [&](const TapDiff& diff, const std::string& where) {
    Json worst = Json::array();
    for (const auto& element : diff.worst) worst.push_back(element_json(diff, element));
    Json tap = {{"tap", tap_key(diff.point, diff.layer)},
                {"point", name(diff.point)},
                {"layer", per_layer(diff.point) ? Json(diff.layer) : Json()},
                {"first_position", diff.first_position},
                {"shape", {diff.rows, diff.heads, diff.width}},
                {"within", diff.within()},
                {"share", finite_or_null(diff.share())},
                {"max_abs", finite_or_null(diff.max_abs)},
                {"relative_l2", finite_or_null(diff.relative_l2)},
                {"cosine", finite_or_null(diff.cosine)},
                {"not_finite_a", diff.not_finite_a},
                {"not_finite_b", diff.not_finite_b},
                {"worst", std::move(worst)}};
    if (!where.empty()) tap["where"] = where;
    return tap;
  };
  Json taps = Json::array();
  for (const auto& [key, row] : rows_) taps.push_back(tap_json(row.diff, row.where));
  const Row& most = worst();
  return {{"atol", tolerance_.atol},
          {"rtol", tolerance_.rtol},
          {"injected", injected},
          {"within", within()},
          {"verdict", verdict(injected)},
          {"first", first_ ? tap_json(first_->first, first_->second) : Json()},
          {"worst", tap_json(most.diff, most.where)},
          {"taps", std::move(taps)}};
}

std::string DiffReport::svg(const std::string& title) const {
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
  for (std::size_t layer = 0; layer < n_layers_; ++layer) {
    for (const TapPoint point : layer_points) {
      if (row(point, layer) != nullptr && (layers.empty() || layers.back() != layer)) layers.push_back(layer);
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
    for (const char c : words) {
      escaped += c == '<'   ? "&lt;"
                 : c == '>' ? "&gt;"
                 : c == '&' ? "&amp;"
                 : c == '"' ? "&quot;"
                            : std::string(1, c);
    }
    text += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n",
                        x, y, anchor, size, fill, escaped);
  };
  const auto cell = [&](std::size_t x, std::size_t y, const Row& found) {
    const double share = found.diff.share();
    text +=
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\"/>\n",
                    x, y, cell_width, cell_height, colour(share));
    label(x + cell_width / 2, y + 16, "middle", share_text(share), 11, ink(share));
  };
  label(16, 24, "start", title, 14, "#111111");
  label(16, 44, "start", verdict(false), 11);
  for (std::size_t i = 0; i < layer_points.size(); ++i) {
    label(left + i * cell_width + cell_width / 2, top - 8, "middle", name(layer_points[i]));
  }
  std::size_t y = top;
  for (const std::size_t layer : layers) {
    label(left - 10, y + 16, "end", fmt::format("layer {}", layer));
    for (std::size_t i = 0; i < layer_points.size(); ++i) {
      if (const Row* found = row(layer_points[i], layer)) cell(left + i * cell_width, y, *found);
    }
    y += cell_height;
  }
  y += 12;
  std::size_t x = left;
  for (const TapPoint point : outer_points) {
    const Row* found = row(point, 0);
    if (found == nullptr) continue;
    label(x + cell_width - 10, y + 16, "end", name(point));
    cell(x + cell_width, y, *found);
    x += 3 * cell_width;
  }
  y += cell_height + 24;
  x = left;
  constexpr std::array<std::pair<double, const char*>, 6> steps = {
      {{1e-6, "≤ 1e-6"}, {1e-4, "1e-4"}, {0.01, "1 %"}, {0.3, "30 %"}, {0.8, "> 50 %"}, {5, "beyond"}}};
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

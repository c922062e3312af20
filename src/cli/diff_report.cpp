#include "cli/diff_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fs::cli {
namespace {

using engine::TapDiff;
using engine::TapPoint;

/// "1050" → "1,050".
std::string grouped(double whole) {
  const std::string digits = fmt::format("{:.0f}", whole);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
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
                     tap_text(diff), place_text(diff, worst), worst.a, worst.b,
                     worst.share > 1 ? share_text(worst.share) : share_text(worst.share) + " of");
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

const TapDiff* DiffReport::find(TapPoint point, std::size_t layer) const {
  const auto found = rows_.find(key(point, layer));
  return found == rows_.end() ? nullptr : &found->second.diff;
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
  const auto cell = [&](const TapDiff* diff) {
    if (diff == nullptr) return fmt::format("{:>{}}", "-", width);
    return coloured(fmt::format("{:>{}}", share_text(diff->share()), width), diff->share(), colour);
  };
  std::string text = "     layer";
  for (const TapPoint point : layer_points) text += fmt::format("{:>{}}", name(point), width);
  text += '\n';
  const auto outer = [&](TapPoint point) {
    if (const TapDiff* found = find(point, 0)) text += fmt::format("{:>10}{}\n", name(point), cell(found));
  };
  outer(TapPoint::embed);
  for (std::size_t layer = 0; layer < n_layers_; ++layer) {
    const auto has = [&](TapPoint point) { return find(point, layer) != nullptr; };
    if (std::none_of(layer_points.begin(), layer_points.end(), has)) continue;
    text += fmt::format("{:>10}", layer);
    for (const TapPoint point : layer_points) text += cell(find(point, layer));
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

}  // namespace fs::cli

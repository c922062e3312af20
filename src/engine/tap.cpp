#include "engine/tap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fs::engine {
namespace {

constexpr std::array<std::string_view, tap_point_count> names = {
    "embed",      "attn_norm", "q",       "k",         "v",          "attn_out",
    "attn_resid", "mlp_norm",  "mlp_act", "block_out", "final_norm", "logits"};

}  // namespace

std::string_view name(TapPoint point) { return names[static_cast<std::size_t>(point)]; }

std::optional<TapPoint> tap_point_from_name(std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<TapPoint>(found - names.begin());
}

bool per_layer(TapPoint point) { return point >= TapPoint::attn_norm && point <= TapPoint::block_out; }

std::string tap_key(TapPoint point, std::size_t layer) {
  return per_layer(point) ? fmt::format("layers.{}.{}", layer, name(point)) : std::string(name(point));
}

}  // namespace fs::engine

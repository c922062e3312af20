#pragma once
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/json_output.h"
#include "engine/diff.h"

namespace fs::cli {

/// The columns of a report, in the order of a layer.
inline constexpr std::array layer_points = {
    engine::TapPoint::attn_norm, engine::TapPoint::q,        engine::TapPoint::k,
    engine::TapPoint::v,         engine::TapPoint::attn_out, engine::TapPoint::attn_resid,
    engine::TapPoint::mlp_norm,  engine::TapPoint::mlp_act,  engine::TapPoint::block_out};

/// What layer-diff has found: every compared tap, summed up by (point, layer), and the first one beyond
/// tolerance.
class DiffReport {
 public:
  DiffReport(engine::Tolerance tolerance, std::size_t n_layers)
      : tolerance_(tolerance), n_layers_(n_layers) {}

  /// Takes the next tap in the order of execution. `where` names the prompt or step it belongs to; empty if
  /// there is only one.
  void add(const engine::TapDiff& diff, const std::string& where);

  bool empty() const { return rows_.empty(); }
  bool within() const { return !first_; }
  std::size_t n_layers() const { return n_layers_; }
  /// A compared tap; null if it was not compared. Of several passes, the worst.
  const engine::TapDiff* find(engine::TapPoint point, std::size_t layer) const;

  /// A table, layers down and tap points across: each cell the worst element's share of the tolerance.
  std::string table(bool colour) const;
  /// The worst elements of every tap beyond tolerance; of the first of them only, unless `all`.
  std::string elements(bool all) const;
  /// One line. With `injected`, each tap shows what its own operation adds, and the line says which adds
  /// most.
  std::string verdict(bool injected) const;
  Json json(bool injected) const;

 private:
  struct Row {
    engine::TapDiff diff;  ///< of the worst of its passes; counts are of all of them
    std::string where;     ///< of that pass
    std::size_t passes = 0;
  };
  /// Ordered as one forward pass produces them: (0, embed), (1 + layer, point), (1 + n_layers, point).
  using Key = std::pair<std::size_t, engine::TapPoint>;
  Key key(engine::TapPoint point, std::size_t layer) const;
  const Row& worst() const;
  Json element_json(const engine::TapDiff& diff, const engine::ElementDiff& element) const;

  engine::Tolerance tolerance_;
  std::size_t n_layers_;
  std::map<Key, Row> rows_;
  std::optional<std::pair<engine::TapDiff, std::string>> first_;  ///< the first beyond tolerance, and where
};

/// A heat map as an SVG document: layers down, tap points across. `title` stands above it.
std::string heat_map(const DiffReport& report, const std::string& title);

/// A share of the tolerance for people: "0", "3.2 %", "1,050×".
std::string share_text(double share);

}  // namespace fs::cli

#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/json_output.h"
#include "engine/diff.h"

namespace fs::cli {

/// What layer-diff has found: every compared tap, summed up by (point, layer), and the first one beyond
/// tolerance.
class DiffReport {
 public:
  DiffReport(engine::Tolerance tolerance, std::size_t n_layers, std::size_t keep)
      : tolerance_(tolerance), n_layers_(n_layers), keep_(keep) {}

  /// Takes the next tap in the order of execution. `where` names the prompt or step it belongs to; empty if
  /// there is only one.
  void add(const engine::TapDiff& diff, const std::string& where);

  bool empty() const { return rows_.empty(); }
  bool within() const { return !first_; }

  /// A table, layers down and tap points across: each cell the worst element's share of the tolerance.
  std::string table(bool colour) const;
  /// The worst elements of every tap beyond tolerance; of the first of them only, unless `all`.
  std::string elements(bool all) const;
  /// One line. With `injected`, each tap shows what its own operation adds, and the line says which adds
  /// most.
  std::string verdict(bool injected) const;
  Json json(bool injected) const;
  /// A heat map as an SVG document: layers down, tap points across. `title` stands above it.
  std::string svg(const std::string& title) const;

 private:
  struct Row {
    engine::TapDiff diff;  ///< of the worst of its passes; counts are of all of them
    std::string where;     ///< of that pass
    std::size_t passes = 0;
  };
  /// Ordered as one forward pass produces them: (0, embed), (1 + layer, point), (1 + n_layers, point).
  using Key = std::pair<std::size_t, engine::TapPoint>;
  Key key(engine::TapPoint point, std::size_t layer) const;
  const Row* row(engine::TapPoint point, std::size_t layer) const;
  const Row& worst() const;
  Json element_json(const engine::TapDiff& diff, const engine::ElementDiff& element) const;

  engine::Tolerance tolerance_;
  std::size_t n_layers_, keep_;
  std::map<Key, Row> rows_;
  std::optional<std::pair<engine::TapDiff, std::string>> first_;  ///< the first beyond tolerance, and where
};

/// A share of the tolerance for people: "0", "3.2 %", "1,050×".
std::string share_text(double share);

}  // namespace fs::cli

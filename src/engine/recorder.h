#pragma once
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "engine/recording.h"
#include "engine/tap.h"

namespace fs::engine {

/// A choice of taps.
struct TapChoice {
  std::set<TapPoint> points;
  std::optional<std::set<std::size_t>> layers;  ///< of the points that belong to one; unset: every layer

  bool contains(TapPoint point, std::size_t layer) const {
    return points.contains(point) && (!per_layer(point) || !layers || layers->contains(layer));
  }
};

/// Keeps the chosen taps of one session.
class Recorder final : public TapObserver {
 public:
  explicit Recorder(TapChoice choice) : choice_(std::move(choice)) {}

  bool wants(TapPoint point, std::size_t layer) const override { return choice_.contains(point, layer); }
  /// Throws as Recording::append() does.
  void observe(const Tap& tap) override { recording_.append(tap); }

  Recording& recording() { return recording_; }
  const Recording& recording() const { return recording_; }

 private:
  TapChoice choice_;
  Recording recording_;
};

}  // namespace fs::engine

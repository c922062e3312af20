#pragma once
#include "cli/terminal.h"
#include "engine/tap.h"

namespace fs::cli {

/// Looks for Ctrl-C at every tap point, so that a pass over a long chunk does not have to end first; hands
/// taps on to another observer, if there is one.
class InterruptibleTaps final : public engine::TapObserver {
 public:
  explicit InterruptibleTaps(engine::TapObserver* taps = nullptr) : taps_(taps) {}

  bool wants(engine::TapPoint point, std::size_t layer) const override {
    throw_if_interrupted();
    return taps_ != nullptr && taps_->wants(point, layer);
  }
  void observe(const engine::Tap& tap) override { taps_->observe(tap); }

 private:
  engine::TapObserver* taps_;
};

}  // namespace fs::cli

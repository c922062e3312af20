#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/tap.h"

namespace fs::testing {

/// Copies every tap that passes `filter`, in order of arrival, and may change the live one.
class TapLog final : public engine::TapObserver {
 public:
  struct Entry {
    std::string key;
    engine::Tap tap;            // its `values` are dangling: use the copy below
    std::vector<float> values;  // as they arrived, before `change`
  };
  std::function<bool(engine::TapPoint, std::size_t)> filter = [](auto, auto) { return true; };
  std::function<void(const engine::Tap&)> change;
  std::vector<Entry> entries;

  bool wants(engine::TapPoint point, std::size_t layer) const override { return filter(point, layer); }
  void observe(const engine::Tap& tap) override {
    entries.push_back({engine::tap_key(tap.point, tap.layer), tap, {tap.values.begin(), tap.values.end()}});
    if (change) change(tap);
  }
};

}  // namespace fs::testing

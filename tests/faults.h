#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "model/weights.h"

namespace fs::faults {

/// A wrong operation: what it leaves behind at the tap point where its result is seen.
struct Fault {
  std::string name;  ///< "q: swapped heads"
  engine::TapPoint point;
  std::function<void(const engine::Tap&, const model::Config&, const model::Weights&, std::size_t layer)>
      apply;
};

/// Every fault that the tests seed, each of a kind that shipped in some engine once.
const std::vector<Fault>& all();

/// `backend` with one operation of one layer replaced by a faulty one, on every pass.
std::unique_ptr<engine::Backend> with_fault(std::unique_ptr<engine::Backend> backend, model::Weights weights,
                                            const Fault& fault, std::size_t layer);

}  // namespace fs::faults

// `fs` with a fault, chosen by FS_FAULT.
//
// One weight changed in memory after loading, which verify_golden.py must notice: "down_proj" (the default)
// adds to one element of layer 1's down_proj, "lm_head" to one of the row that scores token 0.
//
// One operation of the cpu backend gone wrong, which layer-diff must name: "q: swapped heads@1" is that fault
// of faults.h in layer 1.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/run.h"
#include "faults.h"
#include "model/dtype.h"
#include "model/weights.h"

namespace {

/// Replaces `matrix` by a copy whose element (row, column) is 0.5 larger.
void change_one(fs::model::Weights& weights, fs::model::Matrix& matrix, std::size_t row, std::size_t column) {
  if (matrix.dtype != fs::model::Dtype::bf16) fs::fail(fs::ExitCode::failed, "the fault needs BF16 weights");
  const std::size_t bytes = matrix.rows * matrix.row_bytes();
  const auto copy = std::make_shared<std::vector<std::byte>>(matrix.data, matrix.data + bytes);
  std::byte* const element = copy->data() + row * matrix.row_bytes() + column * sizeof(std::uint16_t);
  std::uint16_t bits = 0;
  std::memcpy(&bits, element, sizeof bits);
  bits = fs::model::float_to_bf16(fs::model::bf16_to_float(bits) + 0.5F);
  std::memcpy(element, &bits, sizeof bits);
  matrix.data = copy->data();
  weights.storage.push_back(copy);
}

std::string_view chosen_fault() {
  const char* chosen = std::getenv("FS_FAULT");
  return chosen == nullptr ? "down_proj" : chosen;
}

void change_weights(fs::model::Weights& weights) {
  const std::string_view fault = chosen_fault();
  if (fault == "down_proj") {
    change_one(weights, weights.layers.at(1).down_proj, 0, 0);
  } else if (fault == "lm_head") {
    change_one(weights, weights.lm_head, 0, 0);
  } else if (fault.find('@') == std::string_view::npos) {
    fs::fail(fs::ExitCode::usage, "FS_FAULT={}: expected down_proj, lm_head or NAME@LAYER", fault);
  }
}

std::unique_ptr<fs::engine::Backend> break_operation(std::unique_ptr<fs::engine::Backend> backend,
                                                     const fs::model::Weights& weights) {
  const std::string_view fault = chosen_fault();
  const std::size_t at = fault.find('@');
  if (at == std::string_view::npos || backend->name() != "cpu") return backend;
  const auto& all = fs::faults::all();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& known) { return known.name == fault.substr(0, at); });
  if (found == all.end()) fs::fail(fs::ExitCode::usage, "FS_FAULT={}: no such fault", fault);
  return fs::faults::with_fault(std::move(backend), weights, *found,
                                std::stoul(std::string(fault.substr(at + 1))));
}

}  // namespace

int main(int argc, char** argv) { return fs::cli::run(argc, argv, {change_weights, break_operation}); }

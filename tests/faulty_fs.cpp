// `fs` with one weight changed in memory after loading: what verify_golden.py must notice.
//
// FS_FAULT chooses it: "down_proj" (the default) adds to one element of layer 1's down_proj, "lm_head" to
// one of the row that scores token 0.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/run.h"
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

void inject(fs::model::Weights& weights) {
  const char* chosen = std::getenv("FS_FAULT");
  const std::string_view fault = chosen == nullptr ? "down_proj" : chosen;
  if (fault == "down_proj") {
    change_one(weights, weights.layers.at(1).down_proj, 0, 0);
  } else if (fault == "lm_head") {
    change_one(weights, weights.lm_head, 0, 0);
  } else {
    fs::fail(fs::ExitCode::usage, "FS_FAULT={}: expected down_proj or lm_head", fault);
  }
}

}  // namespace

int main(int argc, char** argv) { return fs::cli::run(argc, argv, {inject}); }

#include "cpu/panels.h"

#include <algorithm>
#include <string>

#include "base/mapped_file.h"
#include "model/storage.h"

namespace fs::cpu {

const WeightKernels& kernels_of(const Kernels& kernels, model::Dtype dtype) {
  switch (dtype) {
    case model::Dtype::f32:
      return *kernels.f32;
    case model::Dtype::f16:
      return *kernels.f16;
    case model::Dtype::bf16:
      break;
    case model::Dtype::q8_0:
      return *kernels.q8_0;
    case model::Dtype::int4:
      return *kernels.int4;
  }
  return *kernels.bf16;
}

namespace {

std::size_t panels_of(const model::Matrix& matrix) { return (matrix.rows + panel_width - 1) / panel_width; }

}  // namespace

std::size_t arranged_bytes(const Kernels& kernels, const model::Matrix& matrix) {
  const PanelKernels* const panels = kernels_of(kernels, matrix.dtype).panels;
  return panels == nullptr ? 0 : panels_of(matrix) * panels->bytes(matrix.cols);
}

void arrange(Pool& pool, const Kernels& kernels, model::Matrix& matrix, std::byte* to) {
  const PanelKernels& panels = *kernels_of(kernels, matrix.dtype).panels;
  const std::size_t bytes = panels.bytes(matrix.cols);
  constexpr std::size_t at_once = 64;  // one MiB of Q8_0
  pool.for_ranges(panels_of(matrix), at_once, [&](std::size_t begin, std::size_t end, std::size_t) {
    const std::size_t row_bytes = matrix.row_bytes();
    const std::byte* const from = matrix.data + begin * panel_width * row_bytes;
    const std::size_t rows = std::min(end * panel_width, matrix.rows) - begin * panel_width;
    for (std::size_t r = 0; r < rows; r += panel_width) {
      panels.pack(from + r * row_bytes, row_bytes, std::min(panel_width, rows - r), matrix.cols,
                  to + (begin + r / panel_width) * bytes);
    }
    release_pages({from, rows * row_bytes});  // so that the weights are not held twice
  });
  matrix.data = nullptr;
  matrix.arranged = to;
}

void arrange(Pool& pool, const Kernels& kernels, const model::Config& config, model::Weights& weights) {
  std::size_t total = 0;
  bool stored_ones_left = false;
  model::Weights counted = weights;
  model::replace_matrices(config, counted, [&](const std::string&, const model::Matrix& matrix) {
    const std::size_t bytes = arranged_bytes(kernels, matrix);
    total += bytes;  // of tensors in memory or in files: no overflow
    stored_ones_left = stored_ones_left || bytes == 0;
  });
  if (total == 0) return;
  const std::shared_ptr<std::byte> memory = model::weight_memory(total);
  std::byte* to = memory.get();
  model::replace_matrices(config, weights, [&](const std::string&, model::Matrix& matrix) {
    const std::size_t bytes = arranged_bytes(kernels, matrix);
    if (bytes != 0) arrange(pool, kernels, matrix, to);
    to += bytes;
  });
  if (!stored_ones_left) weights.storage.clear();
  weights.storage.push_back(memory);
}

void decode_row(const Kernels& kernels, const model::Matrix& matrix, std::size_t row, std::span<float> out) {
  if (matrix.arranged == nullptr) return matrix.row(row, out);
  const PanelKernels& panels = *kernels_of(kernels, matrix.dtype).panels;
  panels.row(matrix.arranged + row / panel_width * panels.bytes(matrix.cols), row % panel_width, matrix.cols,
             out.data());
}

}  // namespace fs::cpu

#include "cpu/panels.h"

#include <algorithm>
#include <string>

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

std::shared_ptr<const std::byte> arrange(Pool& pool, const Kernels& kernels, model::Matrix& matrix) {
  const PanelKernels* const panels = kernels_of(kernels, matrix.dtype).panels;
  if (panels == nullptr) return nullptr;
  const std::size_t count = (matrix.rows + panel_width - 1) / panel_width, bytes = panels->bytes(matrix.cols);
  const std::shared_ptr<std::byte> memory = model::weight_memory(count * bytes);
  pool.for_ranges(count, 16, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t first = i * panel_width;
      panels->pack(matrix.data + first * matrix.row_bytes(), matrix.row_bytes(),
                   std::min(panel_width, matrix.rows - first), matrix.cols, memory.get() + i * bytes);
    }
  });
  matrix.data = nullptr;
  matrix.arranged = memory.get();
  return memory;
}

void arrange(Pool& pool, const Kernels& kernels, const model::Config& config, model::Weights& weights) {
  std::vector<std::shared_ptr<const void>> memory;
  bool stored_ones_left = false;
  model::replace_matrices(config, weights, [&](const std::string&, model::Matrix& matrix) {
    if (auto held = arrange(pool, kernels, matrix)) {
      memory.push_back(std::move(held));
    } else {
      stored_ones_left = true;
    }
  });
  if (!stored_ones_left) weights.storage.clear();
  weights.storage.insert(weights.storage.end(), memory.begin(), memory.end());
}

void decode_row(const Kernels& kernels, const model::Matrix& matrix, std::size_t row, std::span<float> out) {
  if (matrix.arranged == nullptr) return matrix.row(row, out);
  const PanelKernels& panels = *kernels_of(kernels, matrix.dtype).panels;
  panels.row(matrix.arranged + row / panel_width * panels.bytes(matrix.cols), row % panel_width, matrix.cols,
             out.data());
}

}  // namespace fs::cpu

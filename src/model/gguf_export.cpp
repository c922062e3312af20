#include "model/gguf_export.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "model/ggml_type.h"
#include "model/gguf_config.h"
#include "model/gguf_writer.h"
#include "model/quantize.h"
#include "model/quoted.h"
#include "model/tensor.h"

namespace fs::model {
namespace {

/// Hands over a matrix in `dtype`, some rows at a time.
void write_matrix(const Tensor& tensor, Dtype dtype, ThreadPool& pool, const ByteSink& sink) {
  constexpr std::size_t piece = std::size_t{8}
                                << 20;  // bytes: a few milliseconds between two looks at Ctrl-C
  const Matrix from{tensor.dtype, tensor.shape[0], tensor.shape[1], tensor.bytes.data()};
  const std::size_t bytes = row_bytes(dtype, from.cols);
  const std::size_t most_rows = std::max<std::size_t>(1, piece / bytes);
  std::vector<std::byte> rows;
  for (std::size_t first = 0; first < from.rows; first += most_rows) {
    const std::size_t n = std::min(most_rows, from.rows - first);
    rows.resize(n * bytes);
    encode_rows(tensor.name, from, first, n, dtype, rows.data(), pool);
    sink(rows);
  }
}

}  // namespace

void check_gguf_dtype(const Config& config, Dtype dtype) {
  const std::size_t elements = block_elements(dtype);
  for (const TensorShape& tensor : expected_tensors(config)) {
    if (tensor.shape.size() < 2 || tensor.shape.back() % elements == 0) continue;
    fail(ExitCode::usage,
         "tensor {} has rows of {} elements, and {} in a GGUF file takes multiples of {}; choose another "
         "--dtype",
         in_quotes(tensor.name), tensor.shape.back(), name(dtype), elements);
  }
}

void export_gguf(const std::filesystem::path& path, const Config& config, const Weights& weights,
                 const GgufExport& options, ThreadPool& pool, const Progress& progress) {
  check_gguf_dtype(config, options.dtype);
  const GgmlType type = *ggml_type(options.dtype);
  GgufPairs pairs;
  add_config(pairs, config, options.name, type);
  add_vocabulary(pairs, options.vocabulary);

  const std::vector<Tensor> tensors = list_tensors(config, weights);
  std::vector<GgufSlot> slots;
  std::size_t total = 0, done = 0;
  for (const Tensor& tensor : tensors) {
    const bool matrix = tensor.shape.size() == 2;
    slots.push_back({gguf_tensor_name(tensor.name), matrix ? type : GgmlType::f32, tensor.shape});
    total += matrix ? tensor.shape[0] * row_bytes(options.dtype, tensor.shape[1]) : tensor.bytes.size();
  }
  const auto produce = [&](std::size_t i, const ByteSink& sink) {
    const auto counted = [&](std::span<const std::byte> bytes) {
      sink(bytes);
      done += bytes.size();
      if (progress) progress("write", done, total);
    };
    if (tensors[i].shape.size() == 2) {
      write_matrix(tensors[i], options.dtype, pool, counted);
    } else {
      counted(tensors[i].bytes);
    }
  };
  write_gguf(path, pairs, slots, produce, options.existing);
}

}  // namespace fs::model

#include "cuda/device_weights.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "base/error.h"

namespace fs::cuda::FS_GPU_BUILD {
using gpu::WeightFormat;

WeightFormat format_of(model::Dtype dtype) {
  switch (dtype) {
    case model::Dtype::bf16:
      return WeightFormat::bf16;
    case model::Dtype::f16:
      return WeightFormat::f16;
    case model::Dtype::f32:
      return WeightFormat::f32;
    case model::Dtype::q8_0:
    case model::Dtype::int4:
      break;
  }
  fail(ExitCode::usage,
       "weights in {}: the CUDA backend takes F32, F16 and BF16; choose another --dtype or --backend cpu",
       model::name(dtype));
}

namespace {

constexpr std::size_t chunk_bytes = 16;
constexpr std::size_t alignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// The format of matrices that one kernel reads together: F32 where they differ.
WeightFormat common_format(std::initializer_list<const model::Matrix*> parts) {
  const WeightFormat first = format_of((*parts.begin())->dtype);
  const bool same = std::all_of(parts.begin(), parts.end(),
                                [&](const model::Matrix* part) { return format_of(part->dtype) == first; });
  return same ? first : WeightFormat::f32;
}

std::size_t chunks_of(std::size_t cols, WeightFormat format) {
  const std::size_t per_chunk = gpu::weights_per_chunk(format);
  return (cols + per_chunk - 1) / per_chunk;
}

std::size_t matrix_bytes(std::initializer_list<const model::Matrix*> parts, WeightFormat format) {
  std::size_t rows = 0;
  for (const model::Matrix* part : parts) rows += part->rows;
  return aligned(rows * chunks_of((*parts.begin())->cols, format) * chunk_bytes);
}
std::size_t vector_bytes(const model::Vector& vector) { return aligned(vector.size() * sizeof(float)); }

}  // namespace

std::vector<unsigned char> packed(const model::Matrix& matrix, WeightFormat format) {
  const std::size_t row_bytes = chunks_of(matrix.cols, format) * chunk_bytes;
  std::vector<unsigned char> bytes(matrix.rows * row_bytes);
  std::vector<float> decoded(matrix.cols);
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    if (format == format_of(matrix.dtype)) {
      std::memcpy(bytes.data() + r * row_bytes, matrix.data + r * matrix.row_bytes(), matrix.row_bytes());
    } else {
      matrix.row(r, decoded);
      std::memcpy(bytes.data() + r * row_bytes, decoded.data(), decoded.size() * sizeof(float));
    }
  }
  return bytes;
}

gpu::DeviceMatrix describe(WeightFormat format, std::size_t rows, std::size_t cols,
                           const unsigned char* data) {
  constexpr std::size_t limit = std::numeric_limits<int>::max();
  const std::size_t chunks = chunks_of(cols, format);
  if (rows > limit || cols > limit - 32) {
    fail(ExitCode::unusable, "a weight matrix of [{}, {}] is beyond the CUDA backend's 32-bit sizes", rows,
         cols);
  }
  return {format, static_cast<int>(rows), static_cast<int>(cols), static_cast<int>(chunks), data};
}

std::size_t DeviceWeights::bytes(const model::Weights& weights) {
  const auto alone = [](const model::Matrix& m) { return matrix_bytes({&m}, format_of(m.dtype)); };
  std::size_t total = alone(weights.embed_tokens) + vector_bytes(weights.final_norm);
  if (weights.lm_head.data != weights.embed_tokens.data) total += alone(weights.lm_head);
  for (const model::LayerWeights& layer : weights.layers) {
    const std::initializer_list<const model::Matrix*> qkv = {&layer.q_proj, &layer.k_proj, &layer.v_proj};
    const WeightFormat gate_up = common_format({&layer.gate_proj, &layer.up_proj});
    total += matrix_bytes(qkv, common_format(qkv)) + alone(layer.o_proj) +
             matrix_bytes({&layer.gate_proj}, gate_up) + matrix_bytes({&layer.up_proj}, gate_up) +
             alone(layer.down_proj) + vector_bytes(layer.input_norm) + vector_bytes(layer.q_norm) +
             vector_bytes(layer.k_norm) + vector_bytes(layer.post_attention_norm);
  }
  return total;
}

DeviceWeights::DeviceWeights(const model::Weights& weights, gpu::Stream& stream) : memory_(bytes(weights)) {
  const auto alone = [&](const model::Matrix& m) { return put({&m}, format_of(m.dtype), stream); };
  embed_tokens = alone(weights.embed_tokens);
  lm_head = weights.lm_head.data == weights.embed_tokens.data ? embed_tokens : alone(weights.lm_head);
  final_norm = put(weights.final_norm, stream);
  for (const model::LayerWeights& from : weights.layers) {
    DeviceLayer& to = layers.emplace_back();
    const std::initializer_list<const model::Matrix*> qkv = {&from.q_proj, &from.k_proj, &from.v_proj};
    const WeightFormat gate_up = common_format({&from.gate_proj, &from.up_proj});
    to.input_norm = put(from.input_norm, stream);
    to.qkv = put(qkv, common_format(qkv), stream);
    to.q_norm = put(from.q_norm, stream);
    to.k_norm = put(from.k_norm, stream);
    to.o_proj = alone(from.o_proj);
    to.post_attention_norm = put(from.post_attention_norm, stream);
    to.gate_proj = put({&from.gate_proj}, gate_up, stream);
    to.up_proj = put({&from.up_proj}, gate_up, stream);
    to.down_proj = alone(from.down_proj);
  }
  stream.synchronize();
}

gpu::DeviceMatrix DeviceWeights::put(std::initializer_list<const model::Matrix*> parts, WeightFormat format,
                                     gpu::Stream& stream) {
  unsigned char* const data = room(matrix_bytes(parts, format));
  unsigned char* to = data;
  std::size_t rows = 0;
  for (const model::Matrix* part : parts) {
    const std::vector<unsigned char> bytes = packed(*part, format);
    gpu::copy_to_device(to, bytes.data(), bytes.size(), stream);
    stream.synchronize();
    to += bytes.size();
    rows += part->rows;
  }
  return describe(format, rows, (*parts.begin())->cols, data);
}

const float* DeviceWeights::put(const model::Vector& vector, gpu::Stream& stream) {
  unsigned char* const to = room(vector_bytes(vector));
  gpu::copy_to_device(to, vector.data(), vector.size() * sizeof(float), stream);
  return reinterpret_cast<const float*>(to);
}

unsigned char* DeviceWeights::room(std::size_t bytes) {
  unsigned char* const start = memory_.data() + used_;
  used_ += bytes;
  return start;
}

}  // namespace fs::cuda::FS_GPU_BUILD

#include "cuda/device_weights.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>

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
      return WeightFormat::q8_0;
    case model::Dtype::int4:
      break;
  }
  return WeightFormat::int4;
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

std::size_t scales_of(std::size_t cols, WeightFormat format) {
  const std::size_t together = gpu::chunks_per_scale(format);
  return together == 0 ? 0 : (chunks_of(cols, format) + together - 1) / together;
}

/// Of the parts under one another: the plane of the chunks, and the plane of the factors.
struct PlaneBytes {
  std::size_t chunks, scales;
};
PlaneBytes plane_bytes(std::initializer_list<const model::Matrix*> parts, WeightFormat format) {
  std::size_t rows = 0;
  for (const model::Matrix* part : parts) rows += part->rows;
  const std::size_t cols = (*parts.begin())->cols;
  return {aligned(rows * chunks_of(cols, format) * chunk_bytes),
          aligned(rows * scales_of(cols, format) * sizeof(gpu::F16))};
}
std::size_t matrix_bytes(std::initializer_list<const model::Matrix*> parts, WeightFormat format) {
  const PlaneBytes planes = plane_bytes(parts, format);
  return planes.chunks + planes.scales;
}
std::size_t vector_bytes(const model::Vector& vector) { return aligned(vector.size() * sizeof(float)); }

/// 64 nibbles: from the order of model::Dtype::int4 (i at bits 4·(i / 8) of word i % 8) to that of kernels (i
/// at bits 4·(i % 8) of word i / 8).
void transpose_nibbles(const std::byte* from, std::uint32_t (&to)[8]) {
  std::uint32_t words[8];
  std::memcpy(words, from, sizeof words);
  for (unsigned i = 0; i < 8; ++i) {
    to[i] = 0;
    for (unsigned j = 0; j < 8; ++j) to[i] |= (words[j] >> 4 * i & 15U) << 4 * j;
  }
}

/// One row of blocks, each an fp16 factor and its digits: the digits to `chunks` (as many bytes of them as a
/// row has there), the factors to `scales`.
void split_row(const model::Matrix& matrix, std::size_t r, std::span<unsigned char> chunks,
               std::uint16_t* scales) {
  const std::size_t block = model::block_bytes(matrix.dtype), digits = block - sizeof *scales;
  const std::byte* from = matrix.data + r * matrix.row_bytes();
  for (std::size_t done = 0; done < chunks.size(); done += digits, from += block) {
    std::memcpy(scales++, from, sizeof *scales);
    std::uint32_t words[2][8];
    if (matrix.dtype == model::Dtype::int4) {
      for (std::size_t half = 0; half < 2; ++half) {
        transpose_nibbles(from + sizeof *scales + half * sizeof words[half], words[half]);
      }
    } else {
      std::memcpy(words, from + sizeof *scales, digits);
    }
    std::memcpy(chunks.data() + done, words, std::min(digits, chunks.size() - done));
  }
}

}  // namespace

PackedMatrix packed(const model::Matrix& matrix, WeightFormat format) {
  const std::size_t row_bytes = chunks_of(matrix.cols, format) * chunk_bytes;
  const std::size_t row_scales = scales_of(matrix.cols, format);
  PackedMatrix to{std::vector<unsigned char>(matrix.rows * row_bytes),
                  std::vector<std::uint16_t>(matrix.rows * row_scales)};
  std::vector<float> decoded(matrix.cols);
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    const auto row = std::span(to.chunks).subspan(r * row_bytes, row_bytes);
    if (format != format_of(matrix.dtype)) {
      matrix.row(r, decoded);
      std::memcpy(row.data(), decoded.data(), decoded.size() * sizeof(float));
    } else if (row_scales > 0) {
      split_row(matrix, r, row, to.scales.data() + r * row_scales);
    } else {
      std::memcpy(row.data(), matrix.data + r * matrix.row_bytes(), matrix.row_bytes());
    }
  }
  return to;
}

gpu::DeviceMatrix describe(WeightFormat format, std::size_t rows, std::size_t cols, const unsigned char* data,
                           const std::uint16_t* scales) {
  constexpr std::size_t limit = std::numeric_limits<int>::max();
  const std::size_t chunks = chunks_of(cols, format);
  if (rows > limit || cols > limit - 32) {
    fail(ExitCode::unusable, "a weight matrix of [{}, {}] is beyond the CUDA backend's 32-bit sizes", rows,
         cols);
  }
  return {format,
          static_cast<int>(rows),
          static_cast<int>(cols),
          static_cast<int>(chunks),
          data,
          reinterpret_cast<const gpu::F16*>(scales)};
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
    gpu::DeviceLayer& to = layers.emplace_back();
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
  const PlaneBytes planes = plane_bytes(parts, format);
  unsigned char* const data = room(planes.chunks);
  auto* const scales = reinterpret_cast<std::uint16_t*>(room(planes.scales));
  unsigned char* to = data;
  std::uint16_t* to_scales = scales;
  std::size_t rows = 0;
  for (const model::Matrix* part : parts) {
    const PackedMatrix host = packed(*part, format);
    gpu::copy_to_device(to, host.chunks.data(), host.chunks.size(), stream);
    if (!host.scales.empty()) {
      gpu::copy_to_device(to_scales, host.scales.data(), host.scales.size() * sizeof(std::uint16_t), stream);
    }
    stream.synchronize();
    to += host.chunks.size();
    to_scales += host.scales.size();
    rows += part->rows;
  }
  return describe(format, rows, (*parts.begin())->cols, data, planes.scales > 0 ? scales : nullptr);
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

#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels.h"
#include "model/config.h"
#include "model/weights.h"
#include "runtime.h"

namespace fs::cuda::FS_GPU_BUILD {

/// The rows of a matrix as the kernels read them (gpu::DeviceMatrix).
struct PackedMatrix {
  std::vector<unsigned char> chunks;  // [rows, chunks, 16]
  std::vector<std::uint16_t> scales;  // [rows, factors of a row], fp16
};
/// In `format`: the matrix's own, without any loss, or f32.
PackedMatrix packed(const model::Matrix& matrix, gpu::WeightFormat format);
/// The format that keeps a matrix's elements as they are.
gpu::WeightFormat format_of(model::Dtype dtype);
/// What the kernels are told of `rows` packed rows at `data`. Throws Error(unusable) beyond 32-bit sizes.
gpu::DeviceMatrix describe(gpu::WeightFormat format, std::size_t rows, std::size_t cols,
                           const unsigned char* data, const std::uint16_t* scales = nullptr);

/// The model's weights in device memory, laid out for the kernels: q, k and v under one another, every row
/// padded to whole vectors. All of it is one allocation.
class DeviceWeights {
 public:
  /// Bytes that the weights take on the device.
  static std::size_t bytes(const model::Weights& weights);
  /// Copies; the host's weights may go afterwards. Throws Error(device) if they do not fit.
  DeviceWeights(const model::Weights& weights, gpu::Stream& stream);

  gpu::DeviceMatrix embed_tokens, lm_head;  // [vocab_size, hidden]; the same bytes where tied
  std::vector<gpu::DeviceLayer> layers;
  const float* final_norm = nullptr;  // [hidden]

 private:
  gpu::DeviceMatrix put(std::initializer_list<const model::Matrix*> parts, gpu::WeightFormat format,
                        gpu::Stream& stream);
  const float* put(const model::Vector& vector, gpu::Stream& stream);
  unsigned char* room(std::size_t bytes);

  gpu::DeviceArray<unsigned char> memory_;
  std::size_t used_ = 0;
};

}  // namespace fs::cuda::FS_GPU_BUILD

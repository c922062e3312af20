#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend.h"
#include "engine/devices.h"

/// The CUDA backend: fp32 activations and sums, weights in the format stored; a decode step is a graph. One
/// source, compiled for the card (device) and for the emulator (emulated).
namespace fs::cuda {

struct Options {
  std::size_t device = 0;               ///< its number
  model::Dtype kv = model::Dtype::f32;  ///< of keys and values in the cache: f32, f16, bf16
  bool fast = false;                    ///< activations of a prefill are rounded to bf16 for products
  std::size_t prefill_chunk = 512;      ///< rows of a forward call at most: bounds the scratch memory
  std::size_t context = 0;              ///< tokens that there has to be memory for; 0: as they come
  bool persistent = false;              ///< decode: the layers in one cooperative kernel, where it fits
  bool sync = false;                    ///< wait for every kernel, and name the one that fails
  std::optional<std::vector<std::string>> cublas = std::nullopt;  ///< names to look for; for tests
  std::function<void(const std::string&)> notice = nullptr;       ///< told what memory is taken
};

namespace device {
/// The cards of this machine.
engine::Devices devices();
/// options.device. Throws Error(device) if it is not there or too old, Error(unusable) for a shape that the
/// kernels cannot take.
engine::Device usable_device(const model::Config& config, const Options& options);
/// On it. Throws Error(device) too if its memory does not hold the model and the context.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              const Options& options);
}  // namespace device

namespace emulated {
/// What the emulator stands in for.
engine::Devices devices();
engine::Device usable_device(const model::Config& config, const Options& options);
/// On the CPU, every CUDA thread a fiber: slow, and strict about every rule of CUDA.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              const Options& options);
}  // namespace emulated

}  // namespace fs::cuda

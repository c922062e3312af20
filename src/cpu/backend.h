#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "engine/backend.h"
#include "model/dtype.h"

namespace fs::cpu {

/// What activations are rounded to before they meet a weight matrix; sums are fp32 or exact integers.
///   f32    nothing: exact
///   bf16   to nearest, ties to even
///   int8   blocks of 32: d = largest magnitude / 127 in fp32, q = x / d to nearest, ties to even; x ≈ d · q.
///          For q8_0 and int4 weights
/// Where a processor multiplies bf16 (Kernels::attention_bf16), attention of more than 16 tokens in one pass
/// takes queries, keys, values and softmax weights rounded to bf16 too, unless activations are f32.
enum class Activations { f32, bf16, int8 };

struct Options {
  std::size_t threads = 1;
  std::string_view isa = "auto";        ///< choose_kernels() knows the names
  model::Dtype kv = model::Dtype::f32;  ///< of keys and values in the cache: f32, f16 or bf16
  Activations act = Activations::f32;
  /// Tokens of a forward call at most. 512: enough to hide the reading of weights, and decoding them, behind
  /// arithmetic; two seconds or so of Qwen3-0.6B on two cores.
  std::size_t prefill_chunk = 512;
};

/// Throws Error(usage) for int8 activations and a matrix that is neither q8_0 nor int4, by the name of its
/// dtype.
void check_activations(Activations act, std::string_view name, std::string_view dtype);

/// The fast CPU backend: weights as stored, or where kernels want it so in panels (cpu/panels.h), kernels
/// chosen by `isa`. Results are bit-identical for any number of threads. Throws Error(usage) for an `isa`
/// that is not available, and as check_activations() does.
std::unique_ptr<engine::Backend> make_backend(const model::Config& config, model::Weights weights,
                                              const Options& options);

}  // namespace fs::cpu

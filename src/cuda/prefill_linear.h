#pragma once
#include "cuda/blas.h"
#include "cuda/scratch.h"
#include "kernels.h"
#include "runtime.h"

namespace fs::cuda::FS_GPU_BUILD {

/// The matrix products of a prefill, each by the fastest kernel that takes it: tensor cores where the card
/// has them and the weights are bf16, Q8_0 or INT4, else fp32. cuBLAS, where there is one, multiplies bf16 by
/// bf16; exact products are always our own, as its sums drift over many columns.
class PrefillLinear {
 public:
  /// `exact`: activations are not rounded to bf16.
  PrefillLinear(gpu::Stream& stream, bool exact, const Blas* blas)
      : stream_(stream), exact_(exact), blas_(blas) {}

  /// Activations that the products to come take.  x: [rows, cols]
  void begin(const Scratch& scratch, const float* x, int rows, int cols);
  /// out = x·Wᵀ, or out += where `add`.  out: [rows, W.rows]
  void operator()(const gpu::DeviceMatrix& w, bool add, float* out);

 private:
  gpu::Stream& stream_;
  bool exact_;
  const Blas* blas_;  // null: there is none
  const float* x_ = nullptr;
  int rows_ = 0, cols_ = 0;
  gpu::SplitRows split_;
  bool is_split_ = false;  // what x_ holds lies in split_ too
};

}  // namespace fs::cuda::FS_GPU_BUILD

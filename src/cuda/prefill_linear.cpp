#include "cuda/prefill_linear.h"

namespace fs::cuda::FS_GPU_BUILD {

void PrefillLinear::begin(const Scratch& scratch, const float* x, int rows, int cols) {
  x_ = x;
  rows_ = rows;
  cols_ = cols;
  split_ = {gpu::split_pitch(cols), exact_ ? 3 : 1, scratch.split.data()};
  is_split_ = false;
}

void PrefillLinear::operator()(const gpu::DeviceMatrix& w, bool add, float* out) {
  if (!gpu::tensor_cores() || !gpu::linear_tensor_takes(w.format)) {
    return gpu::linear(stream_, w, x_, rows_, add, out);
  }
  if (!is_split_) gpu::split_activations(stream_, x_, rows_, cols_, split_);
  is_split_ = true;
  if (!exact_ && blas_ != nullptr && w.format == gpu::WeightFormat::bf16) {
    blas_->linear(stream_, w, split_, rows_, add, out);
  } else {
    gpu::linear_tensor(stream_, w, split_, rows_, add, out);
  }
}

}  // namespace fs::cuda::FS_GPU_BUILD

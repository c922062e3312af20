#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kernels.h"
#include "runtime.h"

namespace fs::cuda::FS_GPU_BUILD {

/// Names under which cuBLAS may be installed, best first; none for the emulator, whose memory the real one
/// could not read.
std::vector<std::string> cublas_names();

/// NVIDIA's cuBLAS, loaded where it is installed, so that the program starts everywhere.
class Blas {
 public:
  /// The first of `names` that can be loaded and starts; null if none does, and `reason` says why.
  static std::unique_ptr<Blas> open(const std::vector<std::string>& names, std::string& reason);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// out = x·Wᵀ, or out += where `add`, of bf16 weights and rows of one part.  out: [rows, W.rows]. Throws
  /// Error(device) naming the call that failed.
  void linear(gpu::Stream& stream, const gpu::DeviceMatrix& w, const gpu::SplitRows& x, int rows, bool add,
              float* out) const;

 private:
  struct Library;
  explicit Blas(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace fs::cuda::FS_GPU_BUILD

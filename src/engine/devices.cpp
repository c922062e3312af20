#include "engine/devices.h"

#include "cuda/backend.h"

namespace fs::engine {

Devices cuda_devices(std::string_view backend) {
#if FS_HAS_CUDA_EMULATED
  if (backend == "cuda-emulated") return cuda::emulated::devices();
#endif
#if FS_HAS_CUDA
  if (backend == "cuda") return cuda::device::devices();
#endif
  return {{},
          backend == "cuda" ? "this build has no CUDA backend; configure it with FS_CUDA=ON"
                            : "this build has no emulator; configure it with FS_CUDA_EMULATED=ON"};
}

}  // namespace fs::engine

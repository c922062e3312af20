#pragma once
#include <string_view>

/// Kernels and the code that drives them are compiled once for the card (nvcc) and once for the emulator
/// (FS_EMULATED). Each build lives in an inline namespace of this name, so that one program may hold both.
#if defined(FS_EMULATED)
#define FS_GPU_BUILD emulated
#define FS_BACKEND_NAME "cuda-emulated"
#else
#define FS_GPU_BUILD device
#define FS_BACKEND_NAME "cuda"
#endif

namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// What --backend calls this build.
inline constexpr std::string_view backend_name = FS_BACKEND_NAME;

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#pragma once

/// Kernels and the code that drives them are compiled once for the card (nvcc) and once for the emulator
/// (FS_EMULATED). Each build lives in an inline namespace of this name, so that one program may hold both.
#if defined(FS_EMULATED)
#define FS_GPU_BUILD emulated
#else
#define FS_GPU_BUILD device
#endif

#pragma once

/// The only header that kernels include, and the one place where the two builds part. Both sides declare the
/// same names in fs::gpu: indices, collectives, shared memory, atomics, asynchronous copies, tensor core
/// steps and launch(). Nothing of CUDA's own spelling appears in a kernel.
#include "build.h"
#if defined(FS_EMULATED)
#include "emulator/device.h"
#else
#include "device/device.h"
#endif

#pragma once
#include <cstddef>

/// What the sanitizers must be told about fibers, hand-made memory and synchronisation. Every function is
/// empty in a build without that sanitizer.

#if defined(__SANITIZE_ADDRESS__)
#define FS_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FS_EMULATOR_ASAN 1
#endif
#endif
#ifndef FS_EMULATOR_ASAN
#define FS_EMULATOR_ASAN 0
#endif
/// FS_EMULATOR_TSAN comes from the build: the emulator's own files are not instrumented, the kernels are.
#ifndef FS_EMULATOR_TSAN
#define FS_EMULATOR_TSAN 0
#endif

#if FS_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if FS_EMULATOR_TSAN
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
}
#endif

namespace fs::gpu::emulator {

inline constexpr bool asan = FS_EMULATOR_ASAN != 0, tsan = FS_EMULATOR_TSAN != 0;

inline void poison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#if FS_EMULATOR_ASAN
  __asan_poison_memory_region(memory, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#if FS_EMULATOR_ASAN
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

/// Everything before release(tag) on one CUDA thread happens before what follows acquire(tag) on another.
inline void release([[maybe_unused]] void* tag) {
#if FS_EMULATOR_TSAN
  __tsan_release(tag);
#endif
}
inline void acquire([[maybe_unused]] void* tag) {
#if FS_EMULATOR_TSAN
  __tsan_acquire(tag);
#endif
}
/// Accesses that uninstrumented code makes for the CUDA thread.
inline void note_read([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#if FS_EMULATOR_TSAN
  __tsan_read_range(const_cast<void*>(memory), bytes);
#endif
}
inline void note_write([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if FS_EMULATOR_TSAN
  __tsan_write_range(memory, bytes);
#endif
}

}  // namespace fs::gpu::emulator

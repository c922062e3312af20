#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "element_types.h"
#include "emulator/collectives.h"
#include "emulator/memory.h"
#include "emulator/scheduler.h"
#include "emulator/tensor_core.h"
#include "launch_shape.h"
#include "runtime.h"

/// What kernels see of the emulator: the names that device/device.h declares over CUDA.

/// FS_KERNEL(threads of a block at most), or also (…, blocks that a multiprocessor should hold at least)
#define FS_KERNEL(...) static void
#define FS_DEVICE inline
/// A kernel's argument that device functions may be given by reference.
#define FS_KERNEL_CONSTANT
#define FS_UNROLL
/// So many rounds of a loop one behind the other: a constant.
#define FS_UNROLL_BY(rounds)
/// FS_SHARED(float, sums, [8]); declares an array in the shared memory of the block.
#define FS_SHARED(type, name, ...)                                                                \
  using name##_type = type __VA_ARGS__;                                                           \
  static const char name##_key = 0;                                                               \
  name##_type& name = *static_cast<name##_type*>(::fs::gpu::emulator::self().block->shared.named( \
      &name##_key, sizeof(name##_type), alignof(name##_type)))
/// FS_DYNAMIC_SHARED(float, tile); declares a pointer to the launch's dynamic shared memory.
#define FS_DYNAMIC_SHARED(type, name) \
  type* const name =                  \
      static_cast<type*>(::fs::gpu::emulator::self().block->shared.dynamic({__FILE__, __LINE__}))

namespace fs::gpu {
namespace emulator {

void enqueue(Stream& stream, Launch launch);
void check_pointer_argument(const void* pointer, std::size_t number, const char* kernel);
unsigned resident_blocks(const LaunchShape& shape);

template <class T>
void check_argument(const T& value, std::size_t number, const char* kernel) {
  const auto check = [&](const void* pointer) { check_pointer_argument(pointer, number, kernel); };
  if constexpr (std::is_pointer_v<T>) check(value);
  if constexpr (requires { value.each_pointer(check); }) value.each_pointer(check);
}

template <class T>
const T* aligned(const T* address, std::size_t alignment, Where where) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    fault("{}: {} bytes are loaded or stored at an address that is not aligned to them", where.text(),
          alignment);
  }
  return address;
}

}  // namespace emulator

inline namespace FS_GPU_BUILD {

/// Blocks of a cooperative launch of `kernel` that run at once; 0 where the device has none.
template <class... Parameters>
unsigned resident_blocks(const LaunchShape& shape, void (*)(Parameters...)) {
  return emulator::resident_blocks(shape);
}

/// Queues `kernel` over the grid. Arguments are bound by value; pointers must be device memory.
template <class... Parameters, class... Arguments>
void launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...), Arguments... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  if (!stream.wants(shape)) return;
  const std::tuple<Parameters...> bound(arguments...);
  std::apply(
      [&](const auto&... each) {
        std::size_t number = 0;
        (emulator::check_argument(each, number++, shape.kernel), ...);
      },
      bound);
  emulator::enqueue(stream, {shape.kernel,
                             {shape.blocks_x, shape.blocks_y, 1},
                             {shape.threads, 1, 1},
                             shape.shared_bytes,
                             shape.cooperative,
                             [kernel, bound] { std::apply(kernel, bound); }});
}

inline constexpr std::uint32_t all_lanes = ~0U;

inline int thread_index() { return static_cast<int>(emulator::self().linear); }
inline int lane_index() { return static_cast<int>(emulator::self().lane); }
inline int warp_index() { return thread_index() / 32; }
inline int block_threads() { return static_cast<int>(emulator::self().block->threads.size()); }
inline int block_x() { return static_cast<int>(emulator::self().block->index.x); }
inline int block_y() { return static_cast<int>(emulator::self().block->index.y); }
inline int grid_x() { return static_cast<int>(emulator::current_launch().grid.x); }
inline int grid_y() { return static_cast<int>(emulator::current_launch().grid.y); }

/// The value, but unknown to the compiler: what follows from it is computed here, not kept in registers from
/// round to round of a loop.
inline int anew(int value) { return value; }

inline void sync_threads(FS_CALLER) { emulator::block_barrier(0, 0, false, FS_HERE); }
inline int sync_threads_count(bool predicate, FS_CALLER) {
  return emulator::block_barrier(0, 0, predicate, FS_HERE).count;
}
inline bool sync_threads_and(bool predicate, FS_CALLER) {
  return emulator::block_barrier(0, 0, predicate, FS_HERE).all;
}
inline bool sync_threads_or(bool predicate, FS_CALLER) {
  return emulator::block_barrier(0, 0, predicate, FS_HERE).count > 0;
}
/// Barrier `id` (1 to 15) of `threads` threads, whole warps.
inline void sync_named(int id, int threads, FS_CALLER) {
  emulator::block_barrier(id, threads, false, FS_HERE);
}
inline void sync_warp(std::uint32_t mask = all_lanes, FS_CALLER) {
  emulator::warp_collective(emulator::only_wait, mask, nullptr, FS_HERE, true);
}
inline void sync_grid(FS_CALLER) { emulator::grid_barrier(FS_HERE); }
inline void fence_block() { emulator::fence(); }
inline void fence_device() { emulator::fence(); }
inline void spin_pause() { emulator::yield(); }
/// Programmatic dependent launch: a kernel may start while the one before still runs. What others wrote, and
/// what others read, is touched after this only; the next kernel may start then.
inline void wait_for_previous_kernel() {}

template <class T>
T shuffle(T value, int lane, int width = 32, std::uint32_t mask = all_lanes, FS_CALLER) {
  return emulator::shuffle(emulator::shuffle_from, mask, value, static_cast<unsigned>(lane),
                           static_cast<unsigned>(width), FS_HERE);
}
template <class T>
T shuffle_up(T value, int distance, int width = 32, std::uint32_t mask = all_lanes, FS_CALLER) {
  return emulator::shuffle(emulator::shuffle_up, mask, value, static_cast<unsigned>(distance),
                           static_cast<unsigned>(width), FS_HERE);
}
template <class T>
T shuffle_down(T value, int distance, int width = 32, std::uint32_t mask = all_lanes, FS_CALLER) {
  return emulator::shuffle(emulator::shuffle_down, mask, value, static_cast<unsigned>(distance),
                           static_cast<unsigned>(width), FS_HERE);
}
template <class T>
T shuffle_xor(T value, int lane_mask, int width = 32, std::uint32_t mask = all_lanes, FS_CALLER) {
  return emulator::shuffle(emulator::shuffle_xor, mask, value, static_cast<unsigned>(lane_mask),
                           static_cast<unsigned>(width), FS_HERE);
}
inline std::uint32_t ballot(bool predicate, std::uint32_t mask = all_lanes, FS_CALLER) {
  return static_cast<std::uint32_t>(emulator::vote(emulator::vote_ballot, mask, predicate, FS_HERE));
}
inline bool all_of_warp(bool predicate, std::uint32_t mask = all_lanes, FS_CALLER) {
  return emulator::vote(emulator::vote_all, mask, predicate, FS_HERE) != 0;
}
inline bool any_of_warp(bool predicate, std::uint32_t mask = all_lanes, FS_CALLER) {
  return emulator::vote(emulator::vote_any, mask, predicate, FS_HERE) != 0;
}
inline int warp_add(int value, std::uint32_t mask = all_lanes, FS_CALLER) {
  return static_cast<int>(emulator::vote(emulator::reduce_add, mask, value, FS_HERE));
}
inline int warp_min(int value, std::uint32_t mask = all_lanes, FS_CALLER) {
  return static_cast<int>(emulator::vote(emulator::reduce_min, mask, value, FS_HERE));
}
inline int warp_max(int value, std::uint32_t mask = all_lanes, FS_CALLER) {
  return static_cast<int>(emulator::vote(emulator::reduce_max, mask, value, FS_HERE));
}

/// Sum or maximum over groups of `width` lanes of a whole warp, the same in each of them: a butterfly.
template <int width = 32>
float lanes_sum(float value, FS_CALLER) {
  emulator::ButterflyPayload payload{value, width};
  emulator::warp_collective(emulator::butterfly_sum, all_lanes, &payload, FS_HERE);
  return payload.value;
}
template <int width = 32>
float lanes_max(float value, FS_CALLER) {
  emulator::ButterflyPayload payload{value, width};
  emulator::warp_collective(emulator::butterfly_max, all_lanes, &payload, FS_HERE);
  return payload.value;
}

/// Atomics are relaxed, as CUDA's are; they return the old value.
inline int atomic_add(int* to, int value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
inline unsigned atomic_add(unsigned* to, unsigned value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
inline unsigned atomic_exchange(unsigned* to, unsigned value) {
  return __atomic_exchange_n(to, value, __ATOMIC_RELAXED);
}
inline unsigned atomic_compare_exchange(unsigned* to, unsigned expected, unsigned value) {
  __atomic_compare_exchange_n(to, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
inline unsigned atomic_load(const unsigned* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }

inline float to_float(float value) { return value; }
inline float to_float(Bf16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16U); }
inline float to_float(F16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16U;
  const std::uint32_t exponent = value.bits >> 10U & 0x1FU, fraction = value.bits & 0x3FFU;
  if (exponent == 0) {  // subnormal: fraction · 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23U | fraction << 13U);
}
/// To the nearest, ties to even.
inline void store_as(float* to, float value) { *to = value; }
inline void store_as(F16* to, float value) {
  const auto sign = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U & 0x8000U);
  const double magnitude = std::abs(double{value});
  if (!(magnitude < 65520)) {
    to->bits = static_cast<std::uint16_t>(sign | (std::isnan(value) ? 0x7FFFU : 0x7C00U));
    return;
  }
  // In steps of the last place: 2^-24 for subnormals.
  const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  to->bits = static_cast<std::uint16_t>(sign + steps + (static_cast<std::uint32_t>(exponent + 14) << 10U));
}
inline void store_as(Bf16* to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  to->bits = static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}
inline float as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t as_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float fma(float a, float b, float c) { return a * b + c; }
inline float exp(float x) { return std::exp(x); }
inline double exp(double x) { return std::exp(x); }
inline double log(double x) { return std::log(x); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline float inverse_sqrt(float x) { return 1.0F / std::sqrt(x); }
inline float infinity() { return std::numeric_limits<float>::infinity(); }

/// Vector loads and stores, of shared or device memory; the address is aligned to 16 bytes.
inline F32x4 load4(const float* from, FS_CALLER) {
  F32x4 value;
  std::memcpy(&value, emulator::aligned(from, 16, FS_HERE), sizeof value);
  return value;
}
/// 16 bytes of what a step reads once, as it does weights: they are counted.
inline U32x4 load_once(const void* from, FS_CALLER) {
  U32x4 value;
  emulator::count_streamed(sizeof value);
  std::memcpy(&value, emulator::aligned(from, 16, FS_HERE), sizeof value);
  return value;
}
inline void store4(float* to, F32x4 value, FS_CALLER) {
  emulator::aligned(to, 16, FS_HERE);
  std::memcpy(to, &value, sizeof value);
}
/// Weights: read once, so not kept in the nearest cache.
inline U32x4 load_streaming(const void* from, FS_CALLER) {
  U32x4 value;
  emulator::count_streamed(sizeof value);
  std::memcpy(&value, emulator::aligned(from, 16, FS_HERE), sizeof value);
  return value;
}
inline F16 load_streaming(const F16* from, FS_CALLER) {
  emulator::count_streamed(sizeof *from);
  return *emulator::aligned(from, alignof(F16), FS_HERE);
}
/// What another block has written in this launch: not from a cache that may be stale.
template <class T>
T load_coherent(const T* from) {
  return *from;
}

inline void copy_async16(void* shared, const void* global, bool valid = true) {
  emulator::self().copies.copy16(shared, global, valid);
}
inline void commit_copies() { emulator::self().copies.commit(); }
template <int groups>
void wait_copies() {
  emulator::self().copies.wait(groups);
}

inline void load_matrices(std::uint32_t (&fragments)[4], const void* row, FS_CALLER) {
  emulator::check_matrix_row(row, FS_HERE);
  emulator::LoadMatrixPayload payload{row, {}};
  emulator::warp_collective(emulator::load_matrices, all_lanes, &payload, FS_HERE);
  std::memcpy(fragments, payload.fragments, sizeof fragments);
}
inline void load_matrices_transposed(std::uint32_t (&fragments)[4], const void* row, FS_CALLER) {
  emulator::check_matrix_row(row, FS_HERE);
  emulator::LoadMatrixPayload payload{row, {}};
  emulator::warp_collective(emulator::load_matrices_transposed, all_lanes, &payload, FS_HERE);
  std::memcpy(fragments, payload.fragments, sizeof fragments);
}
inline void multiply_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                          FS_CALLER) {
  emulator::MultiplyPayload payload{d, a, {b0, b1}};
  emulator::warp_collective(emulator::multiply_bf16, all_lanes, &payload, FS_HERE);
}
inline int dot_of_bytes(std::uint32_t a, std::uint32_t b, int c) { return emulator::dot_of_bytes(a, b, c); }

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#pragma once
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device/errors.h"
#include "device/stream.h"
#include "element_types.h"
#include "launch_shape.h"
#include "runtime.h"

/// What kernels see of CUDA: the names that emulator/device.h declares over the emulator.

#define FS_KERNEL(...) static __global__ void __launch_bounds__(__VA_ARGS__)
#define FS_DEVICE __device__ __forceinline__
/// A kernel's argument that device functions may be given by reference.
#define FS_KERNEL_CONSTANT __grid_constant__
#define FS_UNROLL _Pragma("unroll")
/// So many rounds of a loop one behind the other: a constant.
#define FS_UNROLL_BY(rounds) FS_PRAGMA(unroll rounds)
#define FS_PRAGMA(text) _Pragma(#text)
#define FS_SHARED(type, name, ...) __shared__ type name __VA_ARGS__
#define FS_DYNAMIC_SHARED(type, name)                                 \
  extern __shared__ __align__(128) unsigned char fs_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(fs_dynamic_shared)

namespace fs::gpu {
inline namespace device {

/// Before a launch of this shape, or a question about it.
template <class... Parameters>
void allow_shared_memory(const LaunchShape& shape, void (*kernel)(Parameters...)) {
  constexpr std::size_t without_asking = 48U << 10U;
  if (shape.shared_bytes > without_asking) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          shape.kernel);
  }
}

/// Blocks of a cooperative launch of `kernel` that run at once; 0 where the device has none.
template <class... Parameters>
unsigned resident_blocks(const LaunchShape& shape, void (*kernel)(Parameters...)) {
  const CooperativeLimits limits = cooperative_limits();
  if (shape.shared_bytes > limits.shared_bytes) return 0;
  allow_shared_memory(shape, kernel);
  int of_multiprocessor = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_multiprocessor, kernel,
                                                      static_cast<int>(shape.threads), shape.shared_bytes),
        shape.kernel);
  return static_cast<unsigned>(of_multiprocessor) * limits.multiprocessors;
}

/// Queues `kernel` over the grid. Throws Error(device) if the launch is refused.
template <class... Parameters, class... Arguments>
void launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...), Arguments... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  if (!stream.wants(shape)) return;
  allow_shared_memory(shape, kernel);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.blocks_x, shape.blocks_y);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream.state().stream;
  cudaLaunchAttribute attribute{};
  if (shape.cooperative) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  } else {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  config.attrs = &attribute;
  config.numAttrs = shape.cooperative || dependent_launch() ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), shape.kernel);
  if (stream.waits()) check(cudaStreamSynchronize(config.stream), shape.kernel);
}

inline constexpr std::uint32_t all_lanes = ~0U;

FS_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
FS_DEVICE int lane_index() { return static_cast<int>(threadIdx.x) % 32; }
FS_DEVICE int warp_index() { return static_cast<int>(threadIdx.x) / 32; }
FS_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
FS_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
FS_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
FS_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }
FS_DEVICE int grid_y() { return static_cast<int>(gridDim.y); }

FS_DEVICE int anew(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

FS_DEVICE void sync_threads() { __syncthreads(); }
FS_DEVICE int sync_threads_count(bool predicate) { return __syncthreads_count(predicate ? 1 : 0); }
FS_DEVICE bool sync_threads_and(bool predicate) { return __syncthreads_and(predicate ? 1 : 0) != 0; }
FS_DEVICE bool sync_threads_or(bool predicate) { return __syncthreads_or(predicate ? 1 : 0) != 0; }
FS_DEVICE void sync_named(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
FS_DEVICE void sync_warp(std::uint32_t mask = all_lanes) { __syncwarp(mask); }
FS_DEVICE void sync_grid() { cooperative_groups::this_grid().sync(); }
FS_DEVICE void fence_block() { __threadfence_block(); }
FS_DEVICE void fence_device() { __threadfence(); }
FS_DEVICE void spin_pause() {
#if __CUDA_ARCH__ >= 700
  __nanosleep(32);
#endif
}
FS_DEVICE void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

template <class T>
FS_DEVICE T shuffle(T value, int lane, int width = 32, std::uint32_t mask = all_lanes) {
  return __shfl_sync(mask, value, lane, width);
}
template <class T>
FS_DEVICE T shuffle_up(T value, int distance, int width = 32, std::uint32_t mask = all_lanes) {
  return __shfl_up_sync(mask, value, static_cast<unsigned>(distance), width);
}
template <class T>
FS_DEVICE T shuffle_down(T value, int distance, int width = 32, std::uint32_t mask = all_lanes) {
  return __shfl_down_sync(mask, value, static_cast<unsigned>(distance), width);
}
template <class T>
FS_DEVICE T shuffle_xor(T value, int lane_mask, int width = 32, std::uint32_t mask = all_lanes) {
  return __shfl_xor_sync(mask, value, lane_mask, width);
}
FS_DEVICE std::uint32_t ballot(bool predicate, std::uint32_t mask = all_lanes) {
  return __ballot_sync(mask, predicate ? 1 : 0);
}
FS_DEVICE bool all_of_warp(bool predicate, std::uint32_t mask = all_lanes) {
  return __all_sync(mask, predicate ? 1 : 0) != 0;
}
FS_DEVICE bool any_of_warp(bool predicate, std::uint32_t mask = all_lanes) {
  return __any_sync(mask, predicate ? 1 : 0) != 0;
}
template <int width = 32>
FS_DEVICE float lanes_sum(float value) {
  FS_UNROLL
  for (int distance = width / 2; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
  return value;
}
template <int width = 32>
FS_DEVICE float lanes_max(float value) {
  FS_UNROLL
  for (int distance = width / 2; distance > 0; distance /= 2)
    value = fmaxf(value, shuffle_xor(value, distance));
  return value;
}
FS_DEVICE int warp_add(int value) {
  FS_UNROLL
  for (int distance = 16; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
  return value;
}
FS_DEVICE int warp_min(int value) {
  FS_UNROLL
  for (int distance = 16; distance > 0; distance /= 2) value = ::min(value, shuffle_xor(value, distance));
  return value;
}
FS_DEVICE int warp_max(int value) {
  FS_UNROLL
  for (int distance = 16; distance > 0; distance /= 2) value = ::max(value, shuffle_xor(value, distance));
  return value;
}

FS_DEVICE int atomic_add(int* to, int value) { return atomicAdd(to, value); }
FS_DEVICE unsigned atomic_add(unsigned* to, unsigned value) { return atomicAdd(to, value); }
FS_DEVICE unsigned atomic_exchange(unsigned* to, unsigned value) { return atomicExch(to, value); }
FS_DEVICE unsigned atomic_compare_exchange(unsigned* to, unsigned expected, unsigned value) {
  return atomicCAS(to, expected, value);
}
FS_DEVICE unsigned atomic_load(const unsigned* from) { return *const_cast<const volatile unsigned*>(from); }

FS_DEVICE float as_float(std::uint32_t bits) { return __uint_as_float(bits); }
FS_DEVICE std::uint32_t as_bits(float value) { return __float_as_uint(value); }
FS_DEVICE float to_float(float value) { return value; }
FS_DEVICE float to_float(Bf16 value) { return as_float(static_cast<std::uint32_t>(value.bits) << 16U); }
FS_DEVICE float to_float(F16 value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}
/// To the nearest, ties to even.
FS_DEVICE void store_as(float* to, float value) { *to = value; }
FS_DEVICE void store_as(F16* to, float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(value)); }
FS_DEVICE void store_as(Bf16* to, float value) {  // the instruction needs sm_80; finite values
  const std::uint32_t bits = as_bits(value);
  to->bits = static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}
FS_DEVICE float fma(float a, float b, float c) { return fmaf(a, b, c); }
FS_DEVICE float exp(float x) { return expf(x); }
FS_DEVICE double exp(double x) { return ::exp(x); }
FS_DEVICE double log(double x) { return ::log(x); }
FS_DEVICE float max(float a, float b) { return fmaxf(a, b); }
FS_DEVICE int min(int a, int b) { return a < b ? a : b; }
FS_DEVICE int max(int a, int b) { return a > b ? a : b; }
FS_DEVICE float inverse_sqrt(float x) { return 1.0F / sqrtf(x); }
FS_DEVICE float infinity() { return __int_as_float(0x7F800000); }

FS_DEVICE F32x4 load4(const float* from) { return *reinterpret_cast<const F32x4*>(from); }
FS_DEVICE U32x4 load_once(const void* from) { return *static_cast<const U32x4*>(from); }
FS_DEVICE void store4(float* to, F32x4 value) { *reinterpret_cast<F32x4*>(to) = value; }
FS_DEVICE U32x4 load_streaming(const void* from) {
  U32x4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}
FS_DEVICE F16 load_streaming(const F16* from) {
  F16 value;
  asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(value.bits) : "l"(from));
  return value;
}
template <class T>
FS_DEVICE T load_coherent(const T* from) {
  return *const_cast<const volatile T*>(from);
}

FS_DEVICE std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
// From compute capability 8.0 on; older cards are never given a kernel that uses them.
#if __CUDA_ARCH__ >= 800
FS_DEVICE void copy_async16(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
FS_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups>
FS_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
#else
FS_DEVICE void copy_async16(void*, const void*, bool = true) { __trap(); }
FS_DEVICE void commit_copies() {}
template <int groups>
FS_DEVICE void wait_copies() {}
#endif

FS_DEVICE void load_matrices(std::uint32_t (&f)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(shared_address(row))
               : "memory");
}
FS_DEVICE void load_matrices_transposed(std::uint32_t (&f)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(shared_address(row))
               : "memory");
}
FS_DEVICE void multiply_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}
FS_DEVICE int dot_of_bytes(std::uint32_t a, std::uint32_t b, int c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}

}  // namespace device
}  // namespace fs::gpu

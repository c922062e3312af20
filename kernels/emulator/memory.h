#pragma once
#include <cstddef>
#include <map>
#include <string>

/// Device memory: host memory that only kernels and copies may touch. It starts as NaN (all bits set), and a
/// host access to it ends the program with a signal, as on a machine with a card.
namespace fs::gpu::emulator {

/// Whether `address` lies in (or one past) an allocation of device memory.
bool is_device_memory(const void* address);
/// Throws Fault unless [address, address + bytes) lies in one allocation of device memory.
void check_device_range(const void* address, std::size_t bytes, const char* what);
/// Throws Fault if `address` is device memory.
void check_host_memory(const void* address, const char* what);
/// Whether `address` is pinned host memory.
bool is_pinned(const void* address);
/// Throws Fault if something was written between the allocations.
void check_red_zones();

/// Bytes that each kernel has read with load_streaming() and load_once(), weights, keys and values, since the
/// program began.
const std::map<std::string, std::size_t>& streamed_bytes();
/// By the kernel that runs; the kernel they belong to is named when it ends.
void count_streamed(std::size_t bytes);
void end_streamed(const char* kernel);

/// While it lives, device memory can be read and written.
class OpenDeviceMemory {
 public:
  OpenDeviceMemory();
  ~OpenDeviceMemory();
  OpenDeviceMemory(const OpenDeviceMemory&) = delete;
  OpenDeviceMemory& operator=(const OpenDeviceMemory&) = delete;
};

}  // namespace fs::gpu::emulator

#include "emulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "emulator/fault.h"
#include "emulator/sanitizers.h"
#include "emulator/stand_in.h"
#include "runtime.h"

namespace fs::gpu {
namespace emulator {
namespace {

constexpr std::size_t reserved = std::size_t{1} << 36U;  // address space, not memory
constexpr std::size_t alignment = 256, red_zone = 256;

/// One reserved range of addresses, so that one mprotect opens or closes all device memory.
class DeviceMemory {
 public:
  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (base_ == nullptr) {
      void* const range =
          mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (range == MAP_FAILED) fail(ExitCode::device, "emulated device memory: no address space");
      base_ = static_cast<unsigned char*>(range);
    }
    const std::size_t body = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    const std::size_t at = place(body + red_zone);
    if (bytes > free() || at + body + red_zone > reserved) {
      fail(ExitCode::device, "CUDA: cudaMalloc: out of memory ({} bytes of {} free)", bytes, free());
    }
    used_ += bytes;
    high_ = std::max(high_, at + body + red_zone);
    allocations_[at] = bytes;
    const Opened opened(*this);
    unsigned char* const memory = base_ + at;
    unpoison(memory, body + red_zone);
    std::memset(memory, 0xFF, body + red_zone);
    poison(memory + bytes, body - bytes + red_zone);
    return memory;
  }

  void release(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(offset(memory));
    if (found == allocations_.end()) std::terminate();  // freed twice, or never allocated
    poison(memory, found->second);
    used_ -= found->second;
    allocations_.erase(found);
  }

  std::size_t free() {
    const std::lock_guard lock(mutex_);
    return selected_card().memory - std::min(selected_card().memory, used_);
  }

  /// Bytes from `address` to the end of its allocation; nothing outside of any. `end`: one past it counts.
  bool contains(const void* address, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* const byte = static_cast<const unsigned char*>(address);
    if (base_ == nullptr || byte < base_ || byte >= base_ + reserved) return false;
    auto after = allocations_.upper_bound(offset(address));
    if (after == allocations_.begin()) return false;
    --after;
    return offset(address) + bytes <= after->first + after->second;
  }
  bool in_range(const void* address) const {
    const auto* const byte = static_cast<const unsigned char*>(address);
    return base_ != nullptr && byte >= base_ && byte < base_ + reserved;
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (opened_++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    if (--opened_ == 0) protect(PROT_NONE);
  }

  void check_red_zones() {
    const std::lock_guard lock(mutex_);
    const Opened opened(*this);
    for (const auto& [at, bytes] : allocations_) {
      const std::size_t body = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
      if (!asan && std::any_of(base_ + at + bytes, base_ + at + body + red_zone,
                               [](unsigned char byte) { return byte != 0xFF; })) {
        fault("written behind an array of {} bytes in device memory", bytes);
      }
    }
  }

 private:
  struct Opened {
    explicit Opened(DeviceMemory& m) : memory(m) { memory.open(); }
    ~Opened() { memory.close(); }
    DeviceMemory& memory;
  };
  std::size_t offset(const void* address) const {
    return static_cast<std::size_t>(static_cast<const unsigned char*>(address) - base_);
  }
  /// The first gap of `bytes`.
  std::size_t place(std::size_t bytes) const {
    std::size_t at = red_zone;
    for (const auto& [start, size] : allocations_) {
      if (start >= at + bytes) return at;
      at = start + (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment + red_zone;
    }
    return at;
  }
  void protect(int how) const {
    if (base_ != nullptr && mprotect(base_, (high_ + 4095) / 4096 * 4096, how) != 0) std::terminate();
  }

  std::recursive_mutex mutex_;
  unsigned char* base_ = nullptr;
  std::size_t high_ = 0;  // nothing was ever allocated beyond
  std::size_t used_ = 0;
  int opened_ = 0;
  std::map<std::size_t, std::size_t> allocations_;  // offset → bytes
};

DeviceMemory& device() {
  static DeviceMemory memory;
  return memory;
}

std::size_t streamed = 0;  // by the kernel that runs
std::map<std::string, std::size_t> streamed_by_kernel;
std::size_t selected = 0;  // card

struct Pinned {
  std::mutex mutex;
  std::map<const unsigned char*, std::size_t> arrays;
};
Pinned& pinned() {
  static Pinned all;
  return all;
}

}  // namespace

bool is_device_memory(const void* address) { return device().contains(address, 0); }

void check_device_range(const void* address, std::size_t bytes, const char* what) {
  if (!device().contains(address, bytes))
    fault("{}: {} bytes at {} are not one array of device memory", what, bytes, address);
}

void check_host_memory(const void* address, const char* what) {
  if (device().in_range(address)) fault("{}: {} is device memory, host memory is expected", what, address);
}

bool is_pinned(const void* address) {
  const std::lock_guard lock(pinned().mutex);
  auto after = pinned().arrays.upper_bound(static_cast<const unsigned char*>(address));
  if (after == pinned().arrays.begin()) return false;
  --after;
  return static_cast<const unsigned char*>(address) < after->first + after->second;
}

StandIn& stand_in() {
  static StandIn machine;
  return machine;
}
const StandIn::Card& selected_card() { return stand_in().cards.at(selected); }

const std::map<std::string, std::size_t>& streamed_bytes() { return streamed_by_kernel; }
void count_streamed(std::size_t bytes) { streamed += bytes; }
void end_streamed(const char* kernel) { streamed_by_kernel[kernel] += std::exchange(streamed, 0); }

void check_red_zones() { device().check_red_zones(); }

OpenDeviceMemory::OpenDeviceMemory() { device().open(); }
OpenDeviceMemory::~OpenDeviceMemory() { device().close(); }

}  // namespace emulator

inline namespace FS_GPU_BUILD {

void select_device(int index) { emulator::selected = static_cast<std::size_t>(index); }
bool tensor_cores() { return emulator::selected_card().major >= 8; }
std::size_t cache_bytes() { return emulator::selected_card().cache; }
std::size_t free_memory() { return emulator::device().free(); }

void* allocate_device(std::size_t bytes) { return emulator::device().allocate(bytes); }
void free_device(void* memory) noexcept { emulator::device().release(memory); }

void* allocate_pinned(std::size_t bytes) {
  auto* const memory = static_cast<unsigned char*>(::operator new(std::max<std::size_t>(bytes, 1)));
  std::memset(memory, 0xFF, bytes);
  const std::lock_guard lock(emulator::pinned().mutex);
  emulator::pinned().arrays[memory] = bytes;
  return memory;
}
void free_pinned(void* memory) noexcept {
  {
    const std::lock_guard lock(emulator::pinned().mutex);
    emulator::pinned().arrays.erase(static_cast<unsigned char*>(memory));
  }
  ::operator delete(memory);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/fault.h"

namespace fs::gpu::emulator {

/// An address that stands for a synchronisation, for ThreadSanitizer.
struct Tag {
  std::uint64_t unused = 0;
};

/// The shared memory of one block: every array starts as NaN (all bits set), lies between red zones and is
/// gone when the block ends.
class SharedMemory {
 public:
  static constexpr std::size_t static_limit = 48U << 10U;    ///< bytes of FS_SHARED arrays in a block
  static constexpr std::size_t dynamic_limit = 227U << 10U;  ///< bytes a launch may ask for

  /// A new block begins, with `dynamic_bytes` of dynamic shared memory and `n_tags` tags.
  void open(std::size_t dynamic_bytes, std::size_t n_tags);
  /// The block has ended. Throws Fault if something was written between the arrays.
  void close();

  /// The array that `key` names: the same for every thread of the block.
  void* named(const void* key, std::size_t bytes, std::size_t alignment);
  void* dynamic(Where where);
  Tag* tags() { return tags_.data(); }

 private:
  struct Slot {
    const void* key;
    std::size_t offset, bytes;
  };
  std::size_t carve(const void* key, std::size_t bytes, std::size_t alignment);

  std::vector<unsigned char> arena_;
  std::size_t used_ = 0, static_bytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<Tag> tags_;
};

}  // namespace fs::gpu::emulator

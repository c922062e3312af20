#include "emulator/shared_memory.h"

#include <algorithm>

#include "emulator/sanitizers.h"

namespace fs::gpu::emulator {
namespace {

constexpr std::size_t red_zone = 64;
constexpr unsigned char unwritten = 0xFF;  // four of them are a NaN, and −1
constexpr char dynamic_key = 0;
constexpr std::size_t room = SharedMemory::static_limit + SharedMemory::dynamic_limit + (64U << 10U);

/// Not std::fill: ThreadSanitizer would take it for a write by the thread that came first.
void fill_unwritten(unsigned char* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) const_cast<volatile unsigned char*>(bytes)[i] = unwritten;
}

}  // namespace

void SharedMemory::open(std::size_t dynamic_bytes, std::size_t n_tags) {
  if (arena_.empty() || tsan) std::vector<unsigned char>(room).swap(arena_);
  // A fresh address for every block, or ThreadSanitizer would see an order between blocks.
  std::vector<Tag>(n_tags).swap(tags_);
  slots_.clear();
  used_ = static_bytes_ = 0;
  poison(arena_.data(), arena_.size());
  if (dynamic_bytes > 0) carve(&dynamic_key, dynamic_bytes, 1024);
}

void SharedMemory::close() {
  unpoison(arena_.data(), arena_.size());
  for (const Slot& slot : slots_) {
    const auto intact = [&](std::size_t from) {
      const auto* const zone = arena_.data() + from;
      return std::all_of(zone, zone + red_zone, [](unsigned char byte) { return byte == unwritten; });
    };
    if (!intact(slot.offset - red_zone) || !intact(slot.offset + slot.bytes)) {
      fault("written outside a shared array of {} bytes", slot.bytes);
    }
  }
}

void* SharedMemory::named(const void* key, std::size_t bytes, std::size_t alignment) {
  for (const Slot& slot : slots_) {
    if (slot.key == key) return arena_.data() + slot.offset;
  }
  static_bytes_ += bytes;
  if (static_bytes_ > static_limit) {
    fault("{} bytes of static shared memory: a block has {}", static_bytes_, static_limit);
  }
  return arena_.data() + carve(key, bytes, std::max<std::size_t>(alignment, 16));
}

void* SharedMemory::dynamic(Where where) {
  if (slots_.empty() || slots_.front().key != &dynamic_key) {
    fault("{}: dynamic shared memory used, but none was asked for at launch", where.text());
  }
  return arena_.data() + slots_.front().offset;
}

std::size_t SharedMemory::carve(const void* key, std::size_t bytes, std::size_t alignment) {
  const auto base = reinterpret_cast<std::uintptr_t>(arena_.data());
  const std::uintptr_t start = (base + used_ + red_zone + alignment - 1) / alignment * alignment;
  const std::size_t offset = start - base;
  used_ = offset + bytes;
  if (used_ + red_zone > arena_.size()) fault("{} bytes of shared memory: too much", used_);
  unsigned char* const zone = arena_.data() + offset - red_zone;
  unpoison(zone, bytes + 2 * red_zone);
  fill_unwritten(zone, bytes + 2 * red_zone);
  poison(zone, red_zone);
  poison(arena_.data() + offset + bytes, red_zone);
  slots_.push_back({key, offset, bytes});
  return offset;
}

}  // namespace fs::gpu::emulator

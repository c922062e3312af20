#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace fs::text {

/// Mixes all bits of `value` into all bits of the result.
inline std::uint64_t mix(std::uint64_t value) {
  value *= 0x9E3779B97F4A7C15u;
  return value ^ (value >> 32);
}

/// A fast hash of short strings: eight bytes a step.
inline std::uint64_t hash_bytes(std::string_view text) {
  std::uint64_t hash = text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  std::uint64_t eight = 0;
  for (; left >= 8; at += 8, left -= 8) {
    std::memcpy(&eight, at, 8);
    hash = mix(hash ^ eight);
  }
  if (left > 0) {
    // The last 1 to 7 bytes by two reads that may overlap, which is faster than a copy of unknown length.
    if (left >= 4) {
      std::uint32_t low = 0, high = 0;
      std::memcpy(&low, at, 4);
      std::memcpy(&high, at + left - 4, 4);
      eight = low | std::uint64_t{high} << 32;
    } else {
      const auto byte = [at](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(at[i])}; };
      eight = byte(0) | byte(left / 2) << 8 | byte(left - 1) << 16;
    }
    hash = mix(hash ^ eight);
  }
  return mix(hash);
}

}  // namespace fs::text

#pragma once
#include <cstddef>
#include <cstdint>

namespace fs::text {

/// A character of valid UTF-8 and how many bytes it takes.
struct CodePoint {
  std::uint32_t value;
  std::size_t length;
};

/// The character that starts at `text`, which must be valid UTF-8 at a character boundary: nothing is
/// checked.
inline CodePoint code_point_at(const char* text) {
  const auto byte = [text](std::size_t i) -> std::uint32_t { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {(lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  return {(lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu), 4};
}

/// Where the character before `end` starts; there must be one.
inline const char* previous_character(const char* end) {
  do --end;
  while ((static_cast<unsigned char>(*end) & 0xC0u) == 0x80u);
  return end;
}

}  // namespace fs::text

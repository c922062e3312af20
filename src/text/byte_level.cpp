#include "text/byte_level.h"

#include <cstddef>

#include "text/code_point.h"

namespace fs::text {
namespace {

constexpr std::uint32_t alphabet_end = 0x100 + 68;  // 68 bytes are not printable
constexpr std::int16_t no_byte = -1;

constexpr std::array<std::uint32_t, 256> make_characters() {
  std::array<std::uint32_t, 256> characters{};
  std::uint32_t free = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
    characters[byte] = printable ? byte : free++;
  }
  return characters;
}

constexpr std::array<std::uint32_t, 256> characters = make_characters();

constexpr std::array<std::int16_t, alphabet_end> make_bytes() {
  std::array<std::int16_t, alphabet_end> bytes{};
  for (std::int16_t& byte : bytes) byte = no_byte;
  for (std::size_t byte = 0; byte < 256; ++byte) bytes[characters[byte]] = static_cast<std::int16_t>(byte);
  return bytes;
}

constexpr std::array<std::int16_t, alphabet_end> bytes = make_bytes();

}  // namespace

const std::array<std::uint32_t, 256>& byte_level_characters() { return characters; }

std::string byte_level_bytes(std::string_view token) {
  std::string result;
  result.reserve(token.size());
  for (std::size_t i = 0; i < token.size();) {
    const CodePoint c = code_point_at(token.data() + i);
    if (c.value >= alphabet_end || bytes[c.value] == no_byte) return std::string(token);
    result.push_back(static_cast<char>(bytes[c.value]));
    i += c.length;
  }
  return result;
}

}  // namespace fs::text

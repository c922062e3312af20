#pragma once
#include <cstdint>

namespace fs::text::unicode {

/// What a code point is to the split pattern and to NFC, as bits.
enum Class : std::uint8_t {
  letter = 1,       ///< \p{L}
  number = 2,       ///< \p{N}
  space = 4,        ///< \s
  newline = 8,      ///< [\r\n]
  nfc_active = 16,  ///< NFC may change, move or join it to what is before
  nfc_starter = 32  ///< NFC may join an active code point to it, or take it apart for one
};

/// Bits of Class for every code point, 0x110000 of them. Built from unicode_tables on first use.
const std::uint8_t* classes();

}  // namespace fs::text::unicode

#pragma once
#include <cstdint>
#include <span>

namespace fs::text::unicode {

/// Code points first to last, both included.
struct CodePointRange {
  std::uint32_t first, last;
};

// What the oracle's Unicode data says of every code point: sorted, disjoint ranges (see
// tools/unicode_tables.py).
extern const std::span<const CodePointRange> letter_ranges;  ///< \p{L}
extern const std::span<const CodePointRange> number_ranges;  ///< \p{N}
extern const std::span<const CodePointRange> space_ranges;   ///< \s
extern const std::span<const CodePointRange>
    nfc_active_ranges;  ///< NFC may change, move or join these to what is before
extern const std::span<const CodePointRange>
    nfc_starter_ranges;  ///< NFC may join an active code point to these, or take them apart

}  // namespace fs::text::unicode

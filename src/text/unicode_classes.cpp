#include "text/unicode_classes.h"

#include <array>
#include <span>

#include "text/unicode_tables.h"

namespace fs::text::unicode {
namespace {

struct Table {
  std::array<std::uint8_t, 0x110000> of{};

  void add(std::span<const CodePointRange> ranges, Class bit) {
    for (const CodePointRange range : ranges) {
      for (std::uint32_t c = range.first; c <= range.last; ++c)
        of[c] = static_cast<std::uint8_t>(of[c] | bit);
    }
  }

  Table() {
    add(letter_ranges, letter);
    add(number_ranges, number);
    add(space_ranges, space);
    constexpr CodePointRange newlines[] = {{'\n', '\n'}, {'\r', '\r'}};
    add(newlines, newline);
    add(nfc_active_ranges, nfc_active);
    add(nfc_starter_ranges, nfc_starter);
  }
};

}  // namespace

const std::uint8_t* classes() {
  static const Table table;  // in static memory: its 1.1 MB cost nothing until they are touched
  return table.of.data();
}

}  // namespace fs::text::unicode

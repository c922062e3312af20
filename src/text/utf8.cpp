#include "text/utf8.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace fs::text {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Kind { whole, ill_formed, incomplete };

/// What the first bytes of a text are.
struct Sequence {
  Kind kind;
  std::size_t
      length;  ///< of the character, or of the maximal ill-formed subsequence; all of an incomplete one
};

/// Table 3-7 of the Unicode standard: the second byte's range depends on the lead, later ones are 80..BF.
/// `bytes` must not be empty.
Sequence first_sequence(std::string_view bytes) {
  const auto byte = [bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Kind::whole, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::ill_formed, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::incomplete, i};
    unsigned low = 0x80, high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;   // shorter forms exist
      if (lead == 0xED) high = 0x9F;  // surrogates
      if (lead == 0xF0) low = 0x90;   // shorter forms exist
      if (lead == 0xF4) high = 0x8F;  // beyond U+10FFFF
    }
    if (byte(i) < low || byte(i) > high) return {Kind::ill_formed, i};
  }
  return {Kind::whole, length};
}

/// Appends the characters of `bytes` to `text`, ill-formed subsequences as U+FFFD, and returns how many bytes
/// an incomplete character at the end has, which are left out.
std::size_t append_characters(std::string_view bytes, LossyText& text) {
  while (!bytes.empty()) {
    const Sequence sequence = first_sequence(bytes);
    if (sequence.kind == Kind::incomplete) return sequence.length;
    if (sequence.kind == Kind::whole) {
      text.text += bytes.substr(0, sequence.length);
    } else {
      text.text += replacement;
      ++text.replaced;
    }
    bytes.remove_prefix(sequence.length);
  }
  return 0;
}

}  // namespace

LossyText lossy_utf8(std::string_view bytes) {
  LossyText result;
  result.text.reserve(bytes.size());
  if (append_characters(bytes, result) > 0) {
    result.text += replacement;
    ++result.replaced;
  }
  return result;
}

std::string quote(std::string_view bytes) {
  std::string result = "\"";
  const auto escape = std::back_inserter(result);
  while (!bytes.empty()) {
    const Sequence sequence = first_sequence(bytes);
    const std::string_view part = bytes.substr(0, sequence.length);
    const auto byte = [part](std::size_t i) { return static_cast<unsigned char>(part[i]); };
    if (sequence.kind != Kind::whole) {
      for (std::size_t i = 0; i < part.size(); ++i) fmt::format_to(escape, "\\x{:02x}", byte(i));
    } else if (part == "\n") {
      result += "\\n";
    } else if (part == "\r") {
      result += "\\r";
    } else if (part == "\t") {
      result += "\\t";
    } else if (part == "\"" || part == "\\") {
      result += '\\';
      result += part;
    } else if (part.size() == 1 && (byte(0) < 0x20 || byte(0) == 0x7F)) {
      fmt::format_to(escape, "\\x{:02x}", byte(0));
    } else if (part.size() == 2 && byte(0) == 0xC2 && byte(1) < 0xA0) {  // C1 control characters
      fmt::format_to(escape, "\\u{:04x}", byte(1));
    } else {
      result += part;
    }
    bytes.remove_prefix(sequence.length);
  }
  return result += '"';
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  LossyText complete;
  held_.erase(0, held_.size() - append_characters(held_, complete));
  return complete.text;
}

std::string Utf8Stream::finish() {
  const std::string rest = lossy_utf8(held_).text;
  held_.clear();
  return rest;
}

}  // namespace fs::text

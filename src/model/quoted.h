#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>

namespace fs::model {

/// `text` from a file, safe to print inside a one-line message: in double quotes, everything but printable
/// ASCII as \xNN, cut after 96 bytes.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t limit = 96;
  std::string out = "\"";
  for (const char c : text.substr(0, limit)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c >= 0x20 && c < 0x7F) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > limit) out += "…";
  return out + "\"";
}

}  // namespace fs::model

#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace fs::text {

/// Valid UTF-8 made of `bytes`: each maximal ill-formed subsequence becomes one U+FFFD (Unicode 15,
/// section 3.9; what Python's errors="replace" and Rust's from_utf8_lossy do).
struct LossyText {
  std::string text;
  std::size_t replaced = 0;  ///< how many subsequences were replaced
};
LossyText lossy_utf8(std::string_view bytes);

/// `bytes` in double quotes for a table: control characters and invalid bytes as escapes (\n, \x1b, \xff),
/// other characters as they are.
std::string quote(std::string_view bytes);

/// Turns a stream of token bytes into a stream of whole characters: a character that is split over tokens is
/// held back until its last byte has come.
class Utf8Stream {
 public:
  /// Takes the bytes of one token; returns the text that is complete now, invalid bytes as U+FFFD.
  std::string push(std::string_view bytes);
  /// The end: what is still held back can no longer become a character, and comes out as U+FFFD.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace fs::text

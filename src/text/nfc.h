#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace fs::text {

/// Unicode normalisation form C of valid UTF-8, as Hugging Face's NFC normaliser computes it: code points
/// younger than its Unicode version stay as they are. Nothing if `utf8` holds no code point that NFC could
/// touch, so that the usual text is not copied. O(n log n) at worst, in runs of combining marks.
std::optional<std::string> nfc(std::string_view utf8);

}  // namespace fs::text

#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "text/code_point.h"
#include "text/unicode_classes.h"

namespace fs::text {
namespace {

constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

/// The first code point of [text, end) that NFC could touch, or `end`.
const char* find_active(const char* text, const char* end) {
  const std::uint8_t* const classes = unicode::classes();
  while (text != end) {
    std::uint64_t eight = 0;
    if (end - text >= 8 && (std::memcpy(&eight, text, 8), (eight & 0x8080808080808080u) == 0)) {
      text += 8;
    } else if (static_cast<unsigned char>(*text) < 0xCC) {  // below U+0300, the first combining mark
      text += static_cast<unsigned char>(*text) < 0x80 ? 1 : 2;
    } else {
      const CodePoint c = code_point_at(text);
      if (classes[c.value] & unicode::nfc_active) return text;
      text += c.length;
    }
  }
  return end;
}

/// The full canonical decomposition of `utf8`, combining marks in canonical order.
void decompose(std::string_view utf8, std::vector<std::int32_t>& out) {
  out.clear();
  constexpr auto decomposing = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  for (std::size_t i = 0; i < utf8.size();) {
    const CodePoint c = code_point_at(utf8.data() + i);
    std::array<std::int32_t, 16> parts{};  // the longest has 4
    const auto count = utf8proc_decompose_char(static_cast<std::int32_t>(c.value), parts.data(), parts.size(),
                                               decomposing, nullptr);
    if (count < 0) fail(ExitCode::failed, "NFC of U+{:04X}: {}", c.value, utf8proc_errmsg(count));
    out.insert(out.end(), parts.begin(), parts.begin() + count);
    i += c.length;
  }
  // utf8proc orders marks by swapping neighbours, which is quadratic in a long run of them.
  const auto combining_class = [](std::int32_t c) { return utf8proc_get_property(c)->combining_class; };
  const auto is_starter = [&](std::int32_t c) { return combining_class(c) == 0; };
  for (auto run = out.begin(); run != out.end();) {
    run = std::find_if_not(run, out.end(), is_starter);
    const auto run_end = std::find_if(run, out.end(), is_starter);
    const auto before = [&](std::int32_t a, std::int32_t b) {
      return combining_class(a) < combining_class(b);
    };
    if (!std::is_sorted(run, run_end, before)) std::stable_sort(run, run_end, before);
    run = run_end;
  }
}

/// Appends the composition of canonically ordered code points.
void compose(std::vector<std::int32_t>& code_points, std::string& out) {
  const auto count = utf8proc_normalize_utf32(code_points.data(),
                                              static_cast<utf8proc_ssize_t>(code_points.size()), options);
  if (count < 0) fail(ExitCode::failed, "NFC: {}", utf8proc_errmsg(count));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto length = utf8proc_encode_char(code_points[i], bytes.data());
    out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
  }
}

}  // namespace

std::optional<std::string> nfc(std::string_view utf8) {
  const char* done = utf8.data();
  const char* const end = done + utf8.size();
  const char* active = find_active(done, end);
  if (active == end) return std::nullopt;

  const std::uint8_t* const classes = unicode::classes();
  std::string out;
  out.reserve(utf8.size());
  std::vector<std::int32_t> scratch;
  while (active != end) {
    // What changes is a run of active code points and the starter before it, if that can take one of them.
    const char* begin = active;
    if (active != done) {
      const char* const previous = previous_character(active);
      if (classes[code_point_at(previous).value] & unicode::nfc_starter) begin = previous;
    }
    const char* run_end = active;
    while (run_end != end) {
      const CodePoint c = code_point_at(run_end);
      if (!(classes[c.value] & unicode::nfc_active)) break;
      run_end += c.length;
    }
    out.append(done, begin);
    decompose({begin, run_end}, scratch);
    compose(scratch, out);
    done = run_end;
    active = find_active(done, end);
  }
  out.append(done, end);
  return out;
}

}  // namespace fs::text

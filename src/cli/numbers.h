#pragma once
#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/types.h"

namespace fs::cli {

/// The number that `text` is, whole: no blanks, no suffix, no NaN. Throws Error(usage) naming `what` (a flag)
/// if it is no such number or outside [lowest, highest].
template <class Number>
Number parse_number(std::string_view text, std::string_view what,
                    Number lowest = std::numeric_limits<Number>::lowest(),
                    Number highest = std::numeric_limits<Number>::max()) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size() && !text.empty();
  const bool in_range = error == std::errc{} && value >= lowest && value <= highest;  // false for NaN
  if (whole && in_range) return value;
  const std::string_view kind = std::integral<Number> ? "a whole number" : "a finite number";
  if (lowest == std::numeric_limits<Number>::lowest() && highest == std::numeric_limits<Number>::max() &&
      !std::unsigned_integral<Number>) {
    fail(ExitCode::usage, "{}: \"{}\" is not {}", what, text, kind);
  }
  fail(ExitCode::usage, "{}: \"{}\" is not {} from {} to {}", what, text, kind, lowest, highest);
}

/// Token ids separated by commas, blanks or both. Throws Error(usage) naming `what`.
std::vector<TokenId> parse_token_ids(std::string_view text, std::string_view what);

/// A list of indices and ranges, "0,13,27" or "0-5,9": ascending, each once. Throws Error(usage) naming
/// `what` if one is ≥ limit.
std::vector<std::size_t> parse_index_list(std::string_view text, std::string_view what, std::size_t limit);

/// `text` cut at commas; empty pieces are an Error(usage) naming `what`.
std::vector<std::string_view> split_list(std::string_view text, std::string_view what);

}  // namespace fs::cli

#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fs::cli {

/// Ends a stream of text at the first of several stop texts, which may be cut anywhere into pieces. Text that
/// might begin a stop is held back until it is decided.
class StopTexts {
 public:
  /// Each of `stops` must not be empty.
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Takes the next piece of the stream; returns what is certainly before any stop. Not to be called after a
  /// stop.
  std::string push(std::string_view piece);
  /// The stream has ended: what is still held back. Empty after a stop.
  std::string finish() { return std::exchange(held_, {}); }

  /// The stop that was found: the one that is complete first.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> found_;
};

}  // namespace fs::cli

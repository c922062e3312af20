#pragma once
#include <cstdint>
#include <string_view>

namespace fs::text {

/// The split pattern of Qwen2 and Qwen3, the only one implemented, as tokenizer.json spells it.
inline constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Cuts text into the words of qwen2_pattern: the words that BPE then works on one by one. Every byte belongs
/// to exactly one word.
///
/// Written out by hand: a word is five bytes on average, and a regular expression engine spends most of its
/// time on entering and leaving a match. tests/pretokenizer_test.cpp holds it against PCRE2 running the
/// pattern itself.
class WordScanner {
 public:
  /// `utf8` must be valid and outlive the scanner.
  explicit WordScanner(std::string_view utf8);

  /// The next word; empty at the end. Linear over the whole text.
  std::string_view next();

 private:
  /// Where the run of code points that have, or lack, any of the classes in `mask` ends.
  const char* run_of(const char* at, std::uint8_t mask) const;
  const char* run_without(const char* at, std::uint8_t mask) const;
  /// The end of a contraction ('s, 't, 're, 've, 'm, 'll, 'd in any case) whose apostrophe is before `at`, or
  /// nullptr.
  const char* contraction(const char* at) const;
  /// The end of the word of white space that starts at `at`.
  const char* white_space(const char* at) const;

  const std::uint8_t* classes_;
  const char* at_;
  const char* end_;
};

}  // namespace fs::text

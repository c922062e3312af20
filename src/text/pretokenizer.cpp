#include "text/pretokenizer.h"

#include "text/code_point.h"
#include "text/unicode_classes.h"

namespace fs::text {
namespace {
using namespace unicode;
}  // namespace

WordScanner::WordScanner(std::string_view utf8)
    : classes_(classes()), at_(utf8.data()), end_(utf8.data() + utf8.size()) {}

std::string_view WordScanner::next() {
  if (at_ == end_) return {};
  const char* const begin = at_;
  const CodePoint first = code_point_at(begin);
  const std::uint8_t kind = classes_[first.value];
  const char* const second = begin + first.length;

  // The alternatives of the pattern, in its order.
  at_ = nullptr;
  if (first.value == '\'') at_ = contraction(second);  // (?i:'s|'t|'re|'ve|'m|'ll|'d)
  if (at_ == nullptr) {
    if (kind & letter) {  // [^\r\n\p{L}\p{N}]?\p{L}+
      at_ = run_of(second, letter);
    } else if (kind & number) {  // \p{N}
      at_ = second;
    } else if (const char* letters_end = kind & newline ? second : run_of(second, letter);
               letters_end != second) {
      at_ = letters_end;
    } else {  // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
      const char* const symbols = first.value == ' ' ? second : begin;
      const char* const symbols_end = run_without(symbols, letter | number | space);
      at_ = symbols_end != symbols ? run_of(symbols_end, newline) : white_space(begin);
    }
  }
  return {begin, static_cast<std::size_t>(at_ - begin)};
}

const char* WordScanner::run_of(const char* at, std::uint8_t mask) const {
  while (at != end_) {
    const CodePoint c = code_point_at(at);
    if (!(classes_[c.value] & mask)) break;
    at += c.length;
  }
  return at;
}

const char* WordScanner::run_without(const char* at, std::uint8_t mask) const {
  while (at != end_) {
    const CodePoint c = code_point_at(at);
    if (classes_[c.value] & mask) break;
    at += c.length;
  }
  return at;
}

const char* WordScanner::contraction(const char* at) const {
  const auto left = end_ - at;
  const auto lower = [at](std::ptrdiff_t i) { return static_cast<char>(at[i] | 0x20); };
  if (left >= 2) {
    if ((lower(0) == 'r' && lower(1) == 'e') || (lower(0) == 'v' && lower(1) == 'e') ||
        (lower(0) == 'l' && lower(1) == 'l')) {
      return at + 2;
    }
    if (at[0] == '\xC5' && at[1] == '\xBF') return at + 2;  // U+017F, the long s, is an s in another case
  }
  if (left >= 1 && (lower(0) == 's' || lower(0) == 't' || lower(0) == 'm' || lower(0) == 'd')) return at + 1;
  return nullptr;
}

const char* WordScanner::white_space(const char* at) const {
  const char* const begin = at;
  const char* last = at;                // where the last character of the run starts
  const char* after_newline = nullptr;  // where the last newline of the run ends
  while (at != end_) {
    const CodePoint c = code_point_at(at);
    const std::uint8_t kind = classes_[c.value];
    if (!(kind & space)) break;
    last = at;
    at += c.length;
    if (kind & newline) after_newline = at;
  }
  if (after_newline != nullptr) return after_newline;  // \s*[\r\n]+
  if (at == end_ || last == begin) return at;  // \s+(?!\S) at the end of the text; \s+ for a single one
  return last;                                 // \s+(?!\S): the last one goes with the word after it
}

}  // namespace fs::text

#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/code_point.h"
#include "text/unicode_classes.h"

namespace fs::text {
namespace {

std::size_t first_byte(const AddedTokenFinder::Pattern& pattern) {
  return static_cast<unsigned char>(pattern.text[0]);
}

bool is_space(const char* at) { return (unicode::classes()[code_point_at(at).value] & unicode::space) != 0; }

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {
  std::stable_sort(patterns_.begin(), patterns_.end(), [](const Pattern& a, const Pattern& b) {
    return first_byte(a) != first_byte(b) ? first_byte(a) < first_byte(b) : a.text.size() > b.text.size();
  });
  for (const Pattern& pattern : patterns_) {
    starts_[first_byte(pattern)] = true;
    ++begin_[first_byte(pattern) + 1];
  }
  for (std::size_t byte = 0; byte < 256; ++byte) begin_[byte + 1] += begin_[byte];
}

const AddedTokenFinder::Pattern* AddedTokenFinder::match(std::string_view text) const {
  const std::size_t byte = static_cast<unsigned char>(text[0]);
  for (std::size_t i = begin_[byte]; i < begin_[byte + 1]; ++i) {
    if (text.starts_with(patterns_[i].text)) return &patterns_[i];
  }
  return nullptr;
}

std::vector<Piece> AddedTokenFinder::split(std::string_view utf8) const {
  std::vector<Piece> pieces;
  std::size_t done = 0;
  for (std::size_t at = 0; at < utf8.size();) {
    if (!starts_[static_cast<unsigned char>(utf8[at])]) {
      ++at;
      continue;
    }
    const Pattern* const pattern = match(utf8.substr(at));
    if (pattern == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + pattern->text.size();
    at = end;
    if (pattern->lstrip) {
      while (begin > done) {
        const char* const previous = previous_character(utf8.data() + begin);
        if (!is_space(previous)) break;
        begin = static_cast<std::size_t>(previous - utf8.data());
      }
    }
    if (pattern->rstrip) {
      while (end < utf8.size() && is_space(utf8.data() + end)) end += code_point_at(utf8.data() + end).length;
    }
    if (begin > done) pieces.push_back({utf8.substr(done, begin - done), std::nullopt});
    pieces.push_back({utf8.substr(begin, end - begin), pattern->id});
    done = end;
  }
  if (done < utf8.size()) pieces.push_back({utf8.substr(done), std::nullopt});
  return pieces;
}

}  // namespace fs::text

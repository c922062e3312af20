#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pcre2.h>

#include <array>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace fs::text {
namespace {

/// A regular expression of PCRE2 with Unicode classes, as the pattern means it.
class Regex {
 public:
  explicit Regex(std::string_view pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    if (!code_) throw std::runtime_error("the pattern does not compile");
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }

  /// The end of the match that starts at `begin`, or npos.
  std::size_t match(std::string_view text, std::size_t begin) const {
    const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                                  PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, match_.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) return std::string_view::npos;
    if (found < 0) throw std::runtime_error("PCRE2 gave up");
    return pcre2_get_ovector_pointer(match_.get())[1];
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

std::string utf8(std::uint32_t c) {
  const auto tail = [c](std::uint32_t shift) { return static_cast<char>(0x80u | (c >> shift & 0x3Fu)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0u | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0u | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0u | c >> 18), tail(12), tail(6), tail(0)};
}

constexpr std::uint8_t class_mask = unicode::letter | unicode::number | unicode::space;

/// What PCRE2 says of every code point, as bits of unicode::Class.
const std::vector<std::uint8_t>& library_classes() {
  static const std::vector<std::uint8_t> classes = [] {
    const std::pair<Regex, unicode::Class> tests[] = {{Regex(R"(\p{L})"), unicode::letter},
                                                      {Regex(R"(\p{N})"), unicode::number},
                                                      {Regex(R"(\s)"), unicode::space}};
    std::vector<std::uint8_t> result(0x110000);
    for (std::uint32_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      for (const auto& [regex, bit] : tests) {
        if (regex.match(utf8(c), 0) != std::string::npos)
          result[c] = static_cast<std::uint8_t>(result[c] | bit);
      }
    }
    return result;
  }();
  return classes;
}

/// The table and PCRE2 may differ about a code point only if one of them does not know it yet (or, U+180E,
/// counted it as white space once).
TEST(UnicodeClasses, DifferFromPcre2OnlyByUnicodeVersion) {
  std::size_t only_table = 0, only_library = 0;
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    const std::uint8_t ours = unicode::classes()[c] & class_mask, theirs = library_classes()[c];
    if (ours == theirs) continue;
    EXPECT_TRUE(ours == 0 || theirs == 0) << fmt::format("U+{:04X}", c);
    EXPECT_GT(c, 0x7FFu) << "nothing was added so low for a decade";
    ++(theirs == 0 ? only_table : only_library);
  }
  std::cout << only_table << " code points only in the table, " << only_library << " only in PCRE2\n";
}

/// Where the words end, by the pattern itself.
std::vector<std::size_t> by_regex(std::string_view text) {
  static const Regex regex(qwen2_pattern);
  std::vector<std::size_t> ends;
  for (std::size_t begin = 0; begin < text.size(); begin = ends.back()) {
    ends.push_back(regex.match(text, begin));
    if (ends.back() > text.size() || ends.back() == begin)
      throw std::runtime_error("the pattern left a character out");
  }
  return ends;
}

std::vector<std::size_t> by_scanner(std::string_view text) {
  std::vector<std::size_t> ends;
  WordScanner scanner(text);
  std::size_t end = 0;
  for (std::string_view word = scanner.next(); !word.empty(); word = scanner.next())
    ends.push_back(end += word.size());
  return ends;
}

TEST(WordScanner, CutsAsThePatternSays) {
  const std::vector<std::string> expected = {"I",      "'ll", " say", " ",   " “", "hi",
                                             "!”\n\n", "1",   "2",    "   ", "\tx"};
  std::vector<std::string> words;
  WordScanner scanner("I'll say  “hi!”\n\n12   \tx");
  for (std::string_view word = scanner.next(); !word.empty(); word = scanner.next()) words.emplace_back(word);
  EXPECT_EQ(words, expected);
  EXPECT_TRUE(scanner.next().empty());
}

TEST(WordScanner, EqualsPcre2OnTheSamePattern) {
  std::mt19937 random(1);
  // Characters that matter to the pattern, then any that both sides class alike.
  const std::vector<std::string> lively = {
      "'",      "s",      "S", "\u017F", "t",      "r",      "e",      "v",          "m",      "l",      "L",
      "d",      "a",      " ", " ",      "\n",     "\r",     "\t",     "\u00A0",     "\u2028", "\u3000", "1",
      "\u0663", "\u00B2", "!", ".",      "\u0301", "\u4E2D", "\u00E9", "\U0001F680", "\u200B", "\u0085"};
  for (int i = 0; i < 100000; ++i) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) {
      std::string piece = lively[random() % lively.size()];
      if (random() % 5 == 0) {
        const auto c = static_cast<std::uint32_t>(random() % 0x30000);
        const bool alike =
            (unicode::classes()[c] & class_mask) == library_classes()[c] && (c < 0xD800 || c > 0xDFFF);
        if (alike) piece = utf8(c);
      }
      for (std::size_t times = random() % 8 == 0 ? 1 + random() % 5 : 1; times > 0; --times) text += piece;
    }
    ASSERT_EQ(by_scanner(text), by_regex(text)) << quote(text);
  }
}

/// Code points in every role that the pattern has, as far as PCRE2 knows them: all of the small scripts, and
/// a sample of the large ones.
TEST(WordScanner, EqualsPcre2InEveryRole) {
  for (std::uint32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 13) {
    if ((c >= 0xD800 && c <= 0xDFFF) || (unicode::classes()[c] & class_mask) != library_classes()[c])
      continue;
    const std::string x = utf8(c);
    const std::string text = x + "a" + x + " " + x + x + "1" + x + "'" + x + "'r" + x + "\n" + x + "  " + x;
    ASSERT_EQ(by_scanner(text), by_regex(text)) << fmt::format("U+{:04X}", c);
  }
}

}  // namespace
}  // namespace fs::text

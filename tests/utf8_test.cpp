#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace fs::text {
namespace {

#define FFFD "\uFFFD"

TEST(LossyUtf8, ReplacesMaximalIllFormedSubsequences) {
  // What Python's bytes.decode("utf-8", "replace") gives.
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"caf\xC3\xA9 \xE4\xB8\xAD \xF0\x9F\x9A\x80", "caf\u00E9 \u4E2D \U0001F680"},
      {"\xFF", FFFD},
      {"a\x80z", "a" FFFD "z"},
      {"\x80\x80", FFFD FFFD},
      {"\xC3", FFFD},
      {"\xC3(", FFFD "("},
      {"\xC0\x80", FFFD FFFD},
      {"\xC1\xBF", FFFD FFFD},
      {"\xE4\xB8", FFFD},
      {"\xE4\xB8z", FFFD "z"},
      {"\xE0\x80\x80", FFFD FFFD FFFD},
      {"\xE0\x9F\xBF", FFFD FFFD FFFD},
      {"\xED\xA0\x80", FFFD FFFD FFFD},
      {"\xED\x9F\xBF", "\uD7FF"},
      {"\xF0\x9F\x9A", FFFD},
      {"\xF0\x9F\x9A\xF0\x9F\x9A\x80", FFFD "\U0001F680"},
      {"\xF0\x8F\xBF\xBF", FFFD FFFD FFFD FFFD},
      {"\xF4\x8F\xBF\xBF", "\U0010FFFF"},
      {"\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD},
      {"\xF5\x80\x80\x80", FFFD FFFD FFFD FFFD},
      {"\xF1\x80\xE1\x80\xC2"
       "b",
       FFFD FFFD FFFD "b"},
      {"\xE4\xB8\xC3\xA9", FFFD "\u00E9"},
  };
  for (const auto& [bytes, text] : cases) {
    const LossyText lossy = lossy_utf8(bytes);
    EXPECT_EQ(lossy.text, text) << quote(bytes);
    std::size_t replaced = 0;
    for (std::size_t at = 0; (at = text.find(FFFD, at)) != std::string::npos; at += 3) ++replaced;
    EXPECT_EQ(lossy.replaced, replaced) << quote(bytes);
  }
}

TEST(LossyUtf8, AReplacementCharacterInTheTextIsNoReplacement) {
  EXPECT_EQ(lossy_utf8(FFFD).text, FFFD);
  EXPECT_EQ(lossy_utf8(FFFD).replaced, 0u);
}

TEST(Quote, EscapesWhatATableCannotShow) {
  EXPECT_EQ(quote(""), R"("")");
  EXPECT_EQ(quote(" Paris"), R"(" Paris")");
  EXPECT_EQ(quote("a\n\r\tb"), R"("a\n\r\tb")");
  EXPECT_EQ(quote(std::string("\0\x1B\x7F", 3)), R"("\x00\x1b\x7f")");
  EXPECT_EQ(quote("\"\\"), R"("\"\\")");
  EXPECT_EQ(quote("\u0085\u00A0\u4E2D"), "\"\\u0085\u00A0\u4E2D\"");
  EXPECT_EQ(quote("\xF0\x9F"
                  "a\xFF"),
            R"("\xf0\x9fa\xff")");
}

TEST(Utf8Stream, HoldsBackSplitCharacters) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0"), "a");
  EXPECT_EQ(stream.push("\x9F\x9A"), "");
  EXPECT_EQ(stream.push("\x80z"), "\U0001F680z");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, ReplacesWhatCannotBecomeACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE4"), "");
  EXPECT_EQ(stream.push("("), FFFD "(");
  EXPECT_EQ(stream.push("\xE4\xB8"), "");
  EXPECT_EQ(stream.finish(), FFFD);
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("b"), "b");
}

TEST(Utf8Stream, EqualsLossyUtf8HoweverTheBytesAreCut) {
  std::mt19937 random(7);
  constexpr unsigned char lively[] = {'a', 0x80, 0x9F, 0xA0, 0xBF, 0xC2, 0xE0, 0xE4, 0xED, 0xF0, 0xF4, 0xFF};
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    for (std::size_t n = random() % 12; n > 0; --n)
      bytes += static_cast<char>(lively[random() % std::size(lively)]);
    Utf8Stream stream;
    std::string streamed;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = 1 + random() % 3;
      streamed += stream.push(std::string_view(bytes).substr(at, n));
      at += n;
    }
    streamed += stream.finish();
    ASSERT_EQ(streamed, lossy_utf8(bytes).text) << quote(bytes);
  }
}

}  // namespace
}  // namespace fs::text

#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "text/nfc.h"
#include "text/utf8.h"

namespace fs::text {
namespace {

using std::filesystem::path;

const path golden = path(FS_SOURCE_DIR) / "golden";

/// Qwen3's own tokenizer.json, which is not in the repository; empty if it is not here.
path qwen3_tokenizer() {
  const char* const named = std::getenv("FS_QWEN3_TOKENIZER");
  const path file = named != nullptr
                        ? path(named)
                        : path(FS_SOURCE_DIR) / "../shared/assets/qwen3-tokenizer/tokenizer.json";
  return std::filesystem::exists(file) ? file : path();
}

constexpr const char* no_qwen3 =
    "Qwen3's tokenizer.json is not here: its cases were not run (FS_QWEN3_TOKENIZER=FILE names it)";

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::load(golden / "tiny/tokenizer.json");
  return tokenizer;
}

std::vector<TokenId> ids_of(simdjson::dom::element list) {
  std::vector<TokenId> ids;
  for (const auto id : list.get_array()) ids.push_back(static_cast<TokenId>(id.get_uint64()));
  return ids;
}

std::string sha256(const path& file) {
  const std::string bytes = read_file(file);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

/// Runs a golden file of tools/tokenizer_oracle.py with the tokenizer it was made for.
void check_golden(const path& tokenizer_file, const char* cases_file) {
  const JsonDocument cases = JsonDocument::load(golden / "tokenizer" / cases_file, 1 << 20);
  ASSERT_EQ(sha256(tokenizer_file), cases.root()["tokenizer_sha256"].get_string().value())
      << tokenizer_file << " is not the file that " << cases_file
      << " is for; write it again: its recipe is inside";
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_file);
  std::size_t n_cases = 0;
  for (const auto item : cases.root()["encode"].get_array()) {
    const std::string_view text = item["text"];
    EXPECT_EQ(tokenizer.encode(text), ids_of(item["ids"])) << quote(text);
    ++n_cases;
  }
  for (const auto item : cases.root()["decode"].get_array()) {
    EXPECT_EQ(quote(tokenizer.decode(ids_of(item["ids"]))), quote(item["text"]));
    ++n_cases;
  }
  EXPECT_GE(n_cases, 500u);
}

TEST(Tokenizer, MatchesOracleOnTheBundledTokenizer) {
  check_golden(golden / "tiny/tokenizer.json", "tiny_cases.json");
}

TEST(Tokenizer, MatchesOracleOnQwen3) {
  if (qwen3_tokenizer().empty()) GTEST_SKIP() << no_qwen3;
  check_golden(qwen3_tokenizer(), "qwen3_cases.json");
}

TEST(Tokenizer, MatchesPublishedQwen3Cases) {
  const path file = path(FS_SOURCE_DIR) / "../shared/assets/qwen3-0.6b-hf/tokenizer_cases.json";
  if (qwen3_tokenizer().empty() || !std::filesystem::exists(file)) GTEST_SKIP() << no_qwen3;
  const Tokenizer tokenizer = Tokenizer::load(qwen3_tokenizer());
  EXPECT_EQ(tokenizer.size(), 151669u);
  const JsonDocument cases = JsonDocument::load(file, 1 << 20);
  for (const auto item : cases.root()["cases"].get_array()) {
    const std::string_view text = item["text"];
    EXPECT_EQ(tokenizer.encode(text), ids_of(item["ids"])) << quote(text);
    EXPECT_EQ(tokenizer.decode(ids_of(item["ids"])), item["decoded"].get_string().value());
  }
}

TEST(Tokenizer, AddedTokenFlagsMatchOracle) {
  const JsonDocument cases = JsonDocument::load(golden / "tokenizer/flags_cases.json", 1 << 20);
  std::size_t n_tokenizers = 0;
  for (const auto set : cases.root()["tokenizers"].get_array()) {
    const Tokenizer tokenizer =
        Tokenizer::parse(simdjson::minify(set["tokenizer"].value()), "flags_cases.json");
    for (const auto item : set["encode"].get_array()) {
      const std::string_view text = item["text"];
      const std::vector<TokenId> ids = ids_of(item["ids"]);
      EXPECT_EQ(tokenizer.encode(text), ids) << "set " << n_tokenizers << ": " << quote(text);
      EXPECT_EQ(quote(tokenizer.decode(ids)), quote(item["decoded"]));
    }
    ++n_tokenizers;
  }
  EXPECT_EQ(n_tokenizers, 4u);
}

/// Any number of cases written by tools/tokenizer_oracle.py --replay.
TEST(Tokenizer, ReplayMatchesOracle) {
  const char *const tokenizer_file = std::getenv("FS_REPLAY_TOKENIZER"), *const cases_file =
                                                                             std::getenv("FS_REPLAY_CASES");
  if (tokenizer_file == nullptr || cases_file == nullptr) {
    GTEST_SKIP() << "FS_REPLAY_TOKENIZER and FS_REPLAY_CASES name no cases (tools/tokenizer_oracle.py "
                    "--replay writes some)";
  }
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_file);
  const MappedFile file = MappedFile::open(cases_file);
  std::string_view rest = file.text();
  const auto take = [&rest](std::size_t n) {
    if (n > rest.size()) throw std::runtime_error("the replay file is cut off");
    const std::string_view part = rest.substr(0, n);
    rest.remove_prefix(n);
    return part;
  };
  const auto number = [&take] {
    std::uint32_t value = 0;
    std::memcpy(&value, take(4).data(), 4);
    return std::size_t{value};
  };
  std::size_t encoded = 0, decoded = 0, mismatches = 0;
  while (!rest.empty()) {
    const char kind = take(1)[0];
    const std::string_view text = take(number());
    std::vector<TokenId> ids(number());
    if (!ids.empty()) std::memcpy(ids.data(), take(4 * ids.size()).data(), 4 * ids.size());
    const bool match = kind == 'e' ? tokenizer.encode(text) == ids : tokenizer.decode(ids) == text;
    ++(kind == 'e' ? encoded : decoded);
    if (!match && ++mismatches <= 20) {
      ADD_FAILURE() << kind << ' ' << quote(text.substr(0, 200)) << " (" << text.size() << " bytes)";
    }
  }
  std::cout << encoded << " texts encoded, " << decoded << " id sequences decoded, " << mismatches
            << " mismatches\n";
  EXPECT_EQ(mismatches, 0u);
  EXPECT_GT(encoded + decoded, 0u);
}

/// A random character, most of the time of a script that composes.
std::string random_character(std::mt19937& random) {
  constexpr std::pair<std::uint32_t, std::uint32_t> blocks[] = {
      {0, 0x7F},          {0x80, 0x24F},      {0x300, 0x36F},   {0x370, 0x1FFF},  {0x900, 0xDFF},
      {0x1100, 0x11FF},   {0x2000, 0x2FFF},   {0x3040, 0x30FF}, {0x4E00, 0x9FFF}, {0xAC00, 0xD7A3},
      {0xE000, 0x10FFFF}, {0x1F300, 0x1FAFF}, {0xF900, 0xFFFF}};
  const auto [first, last] = blocks[random() % std::size(blocks)];
  const std::uint32_t c = first + static_cast<std::uint32_t>(random()) % (last - first + 1);
  const auto tail = [c](std::uint32_t shift) { return static_cast<char>(0x80u | (c >> shift & 0x3Fu)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0u | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0u | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0u | c >> 18), tail(12), tail(6), tail(0)};
}

TEST(Tokenizer, DecodeOfEncodeIsNfc) {
  std::mt19937 random(20240607);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::size_t n = random() % 24; n > 0; --n) text += random_character(random);
    for (const AddedTokens added : {AddedTokens::recognise, AddedTokens::as_text}) {
      ASSERT_EQ(tiny().decode(tiny().encode(text, added)), nfc(text).value_or(text)) << quote(text);
    }
  }
}

TEST(Tokenizer, EveryByteAndIdDecodes) {
  std::string all;
  for (TokenId id = 0; id < tiny().size(); ++id) {
    EXPECT_FALSE(tiny().bytes(id).empty()) << id;
    all += tiny().bytes(id);
  }
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_NE(all.find(static_cast<char>(byte)), std::string::npos) << byte;
  EXPECT_THROW(tiny().bytes(static_cast<TokenId>(tiny().size())), Error);
  const TokenId unknown[] = {static_cast<TokenId>(tiny().size())};
  EXPECT_THROW(tiny().decode(unknown), Error);
  EXPECT_EQ(tiny().decode({}), "");
}

TEST(Tokenizer, AddedTokensAreTextWhenAsked) {
  const auto id = tiny().added_token("<|im_start|>");
  ASSERT_TRUE(id);
  EXPECT_TRUE(tiny().is_special(*id));
  EXPECT_FALSE(tiny().is_special(tiny().encode("a")[0]));
  EXPECT_FALSE(tiny().added_token("<|im_st"));
  const std::string text = "a<|im_start|>b";
  const auto found = tiny().encode(text), plain = tiny().encode(text, AddedTokens::as_text);
  EXPECT_EQ(std::count(found.begin(), found.end(), *id), 1);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), *id), 0);
  EXPECT_EQ(tiny().decode(plain), text);
}

TEST(Tokenizer, RefusesInvalidUtf8) {
  try {
    tiny().encode("a\xC3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
  }
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// One mebibyte of what makes a quadratic tokenizer stand still. An optimised build takes under 0.4 s for
/// each; the bound leaves room for sanitizers, and a quadratic one would take minutes.
TEST(Tokenizer, LongRunsTakeLinearTime) {
  const Tokenizer qwen3 = qwen3_tokenizer().empty() ? Tokenizer::load(golden / "tiny/tokenizer.json")
                                                    : Tokenizer::load(qwen3_tokenizer());
  constexpr std::size_t size = 1 << 20;
  for (const std::string unit :
       {"a", " ", "\n", "aaab", "\u4E2D", "\u4E2D\u6587\u5B57", "0", "!", "\u0301", "\u0301\u0323",
        "a\u0323\u0301", " \n", "<|", "<|im_end|>", "'s", "\u1100\u1161"}) {
    std::string text;
    while (text.size() < size) text += unit;
    const double start = cpu_seconds();
    const auto ids = qwen3.encode(text);
    const double seconds = cpu_seconds() - start;
    std::cout << quote(unit) << ": " << ids.size() << " ids in " << seconds << " s\n";
    EXPECT_LT(seconds, 10.0) << quote(unit);
    EXPECT_EQ(qwen3.decode(ids), nfc(text).value_or(text)) << quote(unit);
  }
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const std::string text =
      "The capital of France is Paris. <|im_start|> caf\u00e9 e\u0301 1234 \u4E2D\u6587\n\n";
  const auto expected = tiny().encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tiny().encode(text) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace fs::text

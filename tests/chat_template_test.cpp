#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/json.h"

namespace fs::text {
namespace {

TEST(ChatTemplate, MatchesHuggingFace) {
  const auto file = std::filesystem::path(FS_SOURCE_DIR) / "golden/chat_cases.json";
  const JsonDocument cases = JsonDocument::load(file, 1 << 20);
  std::size_t n_cases = 0;
  for (const auto item : cases.root()["cases"].get_array()) {
    std::vector<Message> messages;
    for (const auto message : item["messages"].get_array()) {
      messages.push_back({std::string(message["role"].get_string().value()),
                          std::string(message["content"].get_string().value())});
    }
    EXPECT_EQ(render_chat(messages, item["think"].get_bool()), item["prompt"].get_string().value());
    ++n_cases;
  }
  EXPECT_GE(n_cases, 100u);
}

TEST(ChatTemplate, ReadsAsExpected) {
  EXPECT_EQ(render_chat({{"system", "Be brief."}, {"user", "Hi"}}, false),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(ChatTemplate, RefusesUnknownRolesAndEmptyChats) {
  for (const std::vector<Message>& messages : {std::vector<Message>{}, std::vector<Message>{{"tool", "42"}},
                                               std::vector<Message>{{"us\ner", "Hi"}}}) {
    try {
      render_chat(messages, true);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace fs::text

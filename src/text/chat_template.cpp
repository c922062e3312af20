#include "text/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace fs::text {
namespace {

constexpr std::string_view think_begin = "<think>", think_end = "</think>";

std::string_view strip_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view strip_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

/// What an assistant has said: what it thought, if `</think>` tells, and the answer.
struct Turn {
  std::string_view reasoning, answer;
};

Turn split_turn(std::string_view content) {
  const std::size_t first_end = content.find(think_end);
  if (first_end == std::string_view::npos) return {{}, content};
  std::string_view reasoning = strip_right(content.substr(0, first_end));
  if (const std::size_t begin = reasoning.rfind(think_begin); begin != std::string_view::npos) {
    reasoning.remove_prefix(begin + think_begin.size());
  }
  return {strip_left(reasoning), strip_left(content.substr(content.rfind(think_end) + think_end.size()))};
}

/// The index of the last message that is a question of the user; a tool's response in the user's name is
/// none. The last index if there is no such message.
std::size_t last_query(const std::vector<Message>& messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string_view content = messages[i].content;
    const bool tool_response =
        content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !tool_response) return i;
  }
  return messages.size() - 1;
}

}  // namespace

std::string render_chat(const std::vector<Message>& messages, bool think) {
  if (messages.empty()) fail(ExitCode::usage, "a chat needs at least one message");
  const std::size_t query = last_query(messages);
  std::string prompt;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    const bool assistant = role == "assistant";
    if (!assistant && role != "user" && role != "system") {
      fail(ExitCode::usage, "messages[{}]: role {}, expected \"system\", \"user\" or \"assistant\"", i,
           quote(role));
    }
    prompt.append("<|im_start|>").append(role).append("\n");
    if (assistant) {
      const Turn turn = split_turn(content);
      // Only turns after the last question keep their thinking.
      if (i > query && (i + 1 == messages.size() || !turn.reasoning.empty())) {
        const std::string_view reasoning = strip_right(strip_left(turn.reasoning));
        prompt.append("<think>\n").append(reasoning).append("\n</think>\n\n").append(strip_left(turn.answer));
      } else {
        prompt.append(turn.answer);
      }
    } else {
      prompt.append(content);
    }
    prompt.append("<|im_end|>\n");
  }
  prompt.append("<|im_start|>assistant\n");
  if (!think) prompt.append("<think>\n\n</think>\n\n");
  return prompt;
}

}  // namespace fs::text

#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace fs::text {

/// One message of a conversation.
struct Message {
  std::string role;  ///< "system", "user", "assistant"
  std::string content;
};

/// The prompt text of a conversation in Qwen3's chat format, ready for the assistant's turn: identical to
/// Hugging Face's apply_chat_template(messages, add_generation_prompt=True, enable_thinking=think) with
/// Qwen3's template (without tools). Thinking of past assistant turns is dropped as the template does. Throws
/// Error(usage) for an unknown role.
std::string render_chat(const std::vector<Message>& messages, bool think);

}  // namespace fs::text

#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "cli/generation.h"
#include "cli/open_model.h"
#include "engine/sampler.h"

namespace fs::cli {

/// One prompt and how to continue it, as the flags or a line of --prompts say it. A text or ids, not both.
struct GenerationJob {
  std::optional<std::string> text;  ///< valid UTF-8
  std::optional<std::vector<TokenId>> tokens;
  bool chat = false;                      ///< the text is a user's message: apply the chat template
  std::optional<std::string> system;      ///< only with chat
  std::optional<bool> think;              ///< only with chat
  std::optional<std::size_t> max_tokens;  ///< no limit but the context if absent
  bool ignore_eos = false;
  std::vector<std::string> stops;
  engine::SamplerOptions sampler;     ///< without the seed
  std::optional<std::uint64_t> seed;  ///< chosen at random if absent and needed
  bool is_line = false;               ///< of a file: errors name keys, not flags
};

/// Reads a file of JSON objects, one a line, and makes requests of them; blank lines and a byte order mark
/// are passed over. Keys: prompt or tokens; chat, system, think, n, ignore_eos, stop, seed and the sampler's;
/// what a line does not say is as in `defaults`. Throws Error(usage) naming file, line and key.
struct NumberedRequest {
  std::string where;  ///< "prompts.jsonl:3"
  GenerationRequest request;
};
std::vector<NumberedRequest> read_requests(const std::string& path, const GenerationJob& defaults,
                                           const OpenModel& model);

/// Throws Error(usage), naming the flag, for what every line of --prompts would get wrong.
void check_job(const GenerationJob& job, const OpenModel& model);

/// Tokenizes and checks the job of a line of --prompts, or of the flags. Throws Error(usage).
GenerationRequest make_request(const GenerationJob& job, const OpenModel& model);

}  // namespace fs::cli

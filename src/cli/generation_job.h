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
};

/// Reads a file of JSON objects, one a line; blank lines are passed over. Keys: prompt or tokens; chat,
/// system, think, n, ignore_eos, stop, seed and the sampler's; what a line does not say is as in `defaults`.
/// Throws Error(usage) naming file and line.
struct NumberedJob {
  std::string where;  ///< "prompts.jsonl:3", for errors
  GenerationJob job;
};
std::vector<NumberedJob> read_jobs(const std::string& path, const GenerationJob& defaults);

/// Tokenizes and checks a job, so that it can run. Throws Error(usage).
GenerationRequest make_request(const GenerationJob& job, const OpenModel& model);

}  // namespace fs::cli

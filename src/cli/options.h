#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "engine/sampler.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// The flags that several commands share. Each is declared once, here, so that it means the same everywhere.
namespace fs::cli {

/// --model and -q: of every command that looks at a checkpoint.
struct CommonOptions {
  std::optional<std::string> model;
  bool quiet = false;  ///< no notices, no statistics, no progress; errors are always said
};
void add_common(CLI::App& command, CommonOptions& options);

/// --backend, --isa, --dtype, --kv, --act, --step and add_limits: of every command that runs a model.
struct ComputeOptions {
  std::string backend = "auto";
  std::string isa = "auto";            ///< instruction set of the cpu backend
  std::string dtype = "auto";          ///< of the weights in memory: as stored, or what they are converted to
  std::string kv = "f32";              ///< of keys and values in the cache
  std::string act = "f32";             ///< what activations are rounded to for matrix products
  std::string step = "graph";          ///< how cuda runs a decode step
  std::size_t threads = 0;             ///< 0, not given: as many as there are processors
  std::optional<std::size_t> context;  ///< the model's limit if not given
  std::optional<std::size_t> prefill_chunk;  ///< as the backend prefers if not given
  std::optional<std::size_t> device;         ///< number of the CUDA card
  bool sync = false;                         ///< wait for every CUDA kernel, to name the one that fails
};
void add_compute(CLI::App& command, ComputeOptions& options);
/// The words that --backend, --isa, --dtype, --kv, --act and --step take, and a SPEC in their place.
extern const std::vector<std::string> backend_choices, isa_choices, dtype_choices, kv_choices, act_choices,
    step_choices;
/// Of these only --threads, --ctx and add_device, for commands that name backends in a SPEC.
void add_limits(CLI::App& command, ComputeOptions& options);
/// --prefill-chunk, --device, --sync.
void add_device(CLI::App& command, ComputeOptions& options);
/// Where memory runs out, of commands that run one prompt.
inline constexpr const char* small_context = "use a smaller model, context (--ctx) or prompt";
/// Processor threads at most.
inline constexpr std::size_t most_threads = 1024;

/// Where a prompt comes from. At most one source is given; none means standard input, unless it is a
/// terminal.
struct PromptOptions {
  std::vector<std::string> words;     ///< positional; joined by blanks; a single "-" is standard input
  std::optional<std::string> prompt;  ///< -p; "-" is standard input
  std::optional<std::string> file;    ///< -f; "-" is standard input
  std::optional<std::string> tokens;  ///< --tokens: ids instead of text
  bool standard_input = false;        ///< --stdin

  /// The sources that are named, for messages: "--prompt", …
  std::vector<std::string_view> named() const;
  bool only_tokens() const { return tokens.has_value() && named().size() == 1; }
};
/// `positional` names the positional argument in the help: "PROMPT".
void add_prompt(CLI::App& command, PromptOptions& options, const std::string& positional);
/// --tokens: for the commands that run a model.
void add_prompt_tokens(CLI::App& command, PromptOptions& options);

/// The sampler's flags in our, llama.cpp's and Hugging Face's spelling.
struct SamplingOptions {
  engine::SamplerOptions sampler;  ///< without the seed
  std::optional<std::uint64_t> seed;
  std::vector<CLI::Option*> filters;  ///< the flags that shape the distribution

  bool any_given() const;
};
void add_sampling(CLI::App& command, SamplingOptions& options);
void add_seed(CLI::App& command, std::optional<std::uint64_t>& seed, const std::string& help);

}  // namespace fs::cli

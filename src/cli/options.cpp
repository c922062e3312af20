#include "cli/options.h"

#include <algorithm>
#include <limits>

#include "cli/flags.h"

namespace fs::cli {
const std::vector<std::string> backend_choices = {"auto", "cuda", "cpu", "reference", "cuda-emulated"};
const std::vector<std::string> isa_choices = {"auto", "portable", "avx2", "avx512", "avx512bf16"};
const std::vector<std::string> dtype_choices = {"auto", "f32", "f16", "bf16", "q8_0", "int4"};
const std::vector<std::string> kv_choices = {"f32", "f16", "bf16"};
const std::vector<std::string> act_choices = {"f32", "bf16", "int8"};
const std::vector<std::string> step_choices = {"graph", "persistent"};

void add_common(CLI::App& command, CommonOptions& options) {
  add_text(
      command, "-m,--model", options.model,
      "Checkpoint: a directory, a .safetensors or .gguf file, a Hugging Face name (ORG/NAME) in the local "
      "cache, "
      "or synthetic:SHAPE[@SEED]. Default: $FS_MODEL, Qwen/Qwen3-0.6B in the cache, the bundled tiny model")
      ->type_name("MODEL");
  command.add_flag("-q,--quiet", options.quiet,
                   "Only the answer and errors: no notices, statistics or progress");
}

void add_compute(CLI::App& command, ComputeOptions& options) {
  add_choice(command, "--backend", options.backend, backend_choices,
             "What computes, auto being the fastest here");
  add_choice(command, "--isa", options.isa, isa_choices, "Instruction set of the cpu backend");
  add_choice(
      command, "--dtype", options.dtype, dtype_choices,
      "Format of the weights in memory, auto being the one they are stored in; int4 keeps embedding and "
      "head in q8_0");
  add_choice(command, "--kv", options.kv, kv_choices,
             "Format of keys and values in the cache; the reference has f32, the default, only");
  add_choice(command, "--act", options.act, act_choices,
             "What activations are rounded to in matrix products, f32, the default, being exact; int8 is for "
             "weights in q8_0 and int4 on cpu; cuda rounds in prefill only");
  add_choice(command, "--step", options.step, step_choices,
             "How cuda runs a decode step: as a graph of kernels, or its layers in one persistent kernel, "
             "where that fits; the values are the same");
  add_limits(command, options);
}

void add_limits(CLI::App& command, ComputeOptions& options) {
  add_number<std::size_t>(command, "--threads,-t", options.threads, 1, most_threads,
                          "Processor threads. Default: one for each processor");
  add_number<std::size_t>(command, "--ctx,-c,--ctx-size", options.context, 1,
                          std::numeric_limits<std::size_t>::max(),
                          "Tokens of context at most, which bounds memory. Default: the model's limit");
  add_device(command, options);
}

void add_device(CLI::App& command, ComputeOptions& options) {
  constexpr std::size_t most_rows = 16384;
  add_number<std::size_t>(command, "--prefill-chunk", options.prefill_chunk, 1, most_rows,
                          "Tokens of a prompt that run at once at most, which bounds scratch memory. "
                          "Default: 512 on cpu, 512 on cuda, 32 on reference");
  add_number<std::size_t>(command, "--device", options.device, 0, 1023,
                          "CUDA card, by the number that fs devices shows. Default: 0");
  command.add_flag("--sync", options.sync,
                   "To find a fault: wait for every CUDA kernel, and name the one that fails");
}

std::vector<std::string_view> PromptOptions::named() const {
  std::vector<std::string_view> sources;
  if (!words.empty()) sources.emplace_back("an argument");
  if (prompt) sources.emplace_back("--prompt");
  if (file) sources.emplace_back("--file");
  if (standard_input) sources.emplace_back("--stdin");
  if (tokens) sources.emplace_back("--tokens");
  return sources;
}

void add_prompt(CLI::App& command, PromptOptions& options, const std::string& positional) {
  add_words(command, positional, options.words, "The text; words are joined by blanks; - is standard input");
  add_text(command, "-p,--prompt", options.prompt, "The text, as a flag");
  add_file(command, "-f,--file", options.file, "Read the text from a file; - is standard input");
  command.add_flag(
      "--stdin", options.standard_input,
      "Read the text from standard input; also what happens without any text when it is not a terminal");
}

void add_prompt_tokens(CLI::App& command, PromptOptions& options) {
  add_text(command, "--tokens", options.tokens, "Token ids instead of text: 785,6722,315")->type_name("IDS");
}

bool SamplingOptions::any_given() const {
  return std::any_of(filters.begin(), filters.end(),
                     [](const CLI::Option* flag) { return flag->count() > 0; });
}

void add_sampling(CLI::App& command, SamplingOptions& options) {
  // Any finite number: the sampler itself knows the ranges and is made before weights are loaded.
  constexpr float low = std::numeric_limits<float>::lowest(), high = std::numeric_limits<float>::max();
  engine::SamplerOptions& s = options.sampler;
  options.filters = {
      add_number<float>(command, "--temp,--temperature", s.temperature, low, high,
                        "Temperature; 0, the default, takes the most likely token"),
      add_number<std::size_t>(command, "--topk,--top-k", s.top_k, 0, std::numeric_limits<std::size_t>::max(),
                              "Keep the N most likely tokens; 0, the default, keeps all"),
      add_number<float>(command, "--topp,--top-p", s.top_p, low, high,
                        "Keep the likeliest tokens that reach this probability together. Default: 1"),
      add_number<float>(command, "--minp,--min-p", s.min_p, low, high,
                        "Keep tokens with at least this share of the best one's probability. Default: 0"),
      add_number<float>(command, "--repeat-penalty,--repetition-penalty", s.repetition_penalty, low, high,
                        "Divide (multiply, where negative) the logits of tokens seen. Default: 1"),
      add_number<float>(command, "--presence-penalty", s.presence_penalty, low, high,
                        "Subtract from the logits of tokens seen. Default: 0"),
  };
}

void add_seed(CLI::App& command, std::optional<std::uint64_t>& seed, const std::string& help) {
  add_number<std::uint64_t>(command, "--seed,-s", seed, 0, std::numeric_limits<std::uint64_t>::max(), help);
}

}  // namespace fs::cli

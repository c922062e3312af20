#include <algorithm>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "model/safetensors.h"
#include "model/synthetic.h"
#include "model/weights.h"

namespace fs::model {
namespace {

/// The fields of Hugging Face's Qwen3Config, as its save_pretrained() writes them. No id ends a text: the
/// model has no tokenizer.
std::string config_json(const Config& config) {
  return fmt::format(R"({{
  "architectures": [
    "Qwen3ForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": null,
  "eos_token_id": null,
  "head_dim": {},
  "hidden_act": "silu",
  "hidden_size": {},
  "initializer_range": 0.02,
  "intermediate_size": {},
  "max_position_embeddings": {},
  "max_window_layers": {},
  "model_type": "qwen3",
  "num_attention_heads": {},
  "num_hidden_layers": {},
  "num_key_value_heads": {},
  "rms_norm_eps": {},
  "rope_scaling": null,
  "rope_theta": {},
  "sliding_window": null,
  "tie_word_embeddings": {},
  "torch_dtype": "bfloat16",
  "use_cache": true,
  "use_sliding_window": false,
  "vocab_size": {}
}}
)",
                     config.head_dim, config.hidden, config.intermediate, config.max_positions,
                     config.n_layers, config.n_q_heads, config.n_layers, config.n_kv_heads,
                     config.rms_norm_eps, config.rope_theta, config.tie_word_embeddings, config.vocab_size);
}

void write_text(const std::filesystem::path& path, std::string_view text, AtomicFile::Existing existing) {
  AtomicFile file(path, existing);
  file.write(text);
  file.commit();
}

}  // namespace

void write_synthetic_checkpoint(std::string_view shape, std::uint64_t seed,
                                const std::filesystem::path& directory, bool force, ThreadPool& pool,
                                const Progress& progress) {
  const Config config = synthetic_config(shape);
  const auto config_file = directory / "config.json", generation_file = directory / "generation_config.json",
             weights_file = directory / "model.safetensors";
  std::error_code error;
  for (const auto& file : {config_file, generation_file, weights_file}) {
    if (!force && std::filesystem::exists(file, error)) {
      fail(ExitCode::failed, "{}: exists already; choose another directory, or --force to replace it",
           file.string());
    }
  }
  const auto existing = force ? AtomicFile::Existing::replace : AtomicFile::Existing::keep;
  std::filesystem::create_directories(directory, error);
  if (error)
    fail(ExitCode::failed, "{}: cannot create the directory: {}", directory.string(), error.message());

  std::vector<Tensor> tensors;
  for (auto& [name, dimensions] : expected_tensors(config)) {
    tensors.push_back({.name = name, .dtype = Dtype::bf16, .shape = dimensions, .bytes = {}, .source = {}});
  }
  constexpr std::size_t chunk = std::size_t{1} << 24;  // elements in memory at a time: 32 MiB
  std::vector<std::uint16_t> values;
  const std::size_t total = config.parameters() * sizeof(std::uint16_t);
  std::size_t done = 0;
  const auto produce = [&](const Tensor& tensor, const ByteSink& sink) {
    std::size_t count = 1;
    for (const std::size_t size : tensor.shape) count *= size;
    for (std::size_t first = 0; first < count; first += chunk) {
      if (progress) progress("write", done, total);
      values.resize(std::min(chunk, count - first));
      pool.for_ranges(values.size(), [&](std::size_t begin, std::size_t end) {
        synthesize(seed, tensor.name, tensor.shape.back(), first + begin,
                   std::span(values).subspan(begin, end - begin));
      });
      sink(std::as_bytes(std::span(values)));
      done += values.size() * sizeof(std::uint16_t);
    }
  };
  // "format": "pt" is what Hugging Face transformers asks for.
  write_safetensors(weights_file, tensors,
                    {{"format", "pt"}, {"synthetic", fmt::format("{}@{}", shape, seed)}}, produce, existing);
  write_text(generation_file, "{\n  \"eos_token_id\": null\n}\n", existing);
  write_text(config_file, config_json(config), existing);
  if (progress) progress("write", total, total);
}

}  // namespace fs::model

#pragma once
// A checkpoint of the smallest legal shape, in memory, for tests to write out whole or spoiled.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/config.h"
#include "model/locate.h"
#include "model/weights.h"

namespace fs::model::testing {

/// A directory that goes away with the object.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fs-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = pattern;
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Replaces the first `from` in `text`; throws if there is none, so that no test spoils nothing.
inline void replace(std::string& text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("nothing to replace: " + std::string(from));
  text.replace(at, from.size(), to);
}

/// The bytes of a safetensors file: the header's length, the header, the data.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data);
}

inline constexpr std::string_view small_config_json = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
  "eos_token_id": 2, "head_dim": 4, "hidden_act": "silu", "hidden_size": 6, "initializer_range": 0.02,
  "intermediate_size": 5, "max_position_embeddings": 64, "max_window_layers": 1, "model_type": "qwen3",
  "num_attention_heads": 2, "num_hidden_layers": 1, "num_key_value_heads": 1, "rms_norm_eps": 1e-06,
  "rope_scaling": null, "rope_theta": 10000, "sliding_window": null, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
  "vocab_size": 8
})";

/// A checkpoint of `small_config_json`, as files that a test may spoil before they are written.
struct SmallCheckpoint {
  std::string config{small_config_json};
  std::string generation = R"({"eos_token_id": [2, 3]})";
  std::string weights_name = "model.safetensors";
  std::string header, data;  // of the weights
  std::map<std::string, std::string>
      others;  // further files, by name; one of an earlier file's name replaces it

  explicit SmallCheckpoint(std::size_t element = 2, std::string_view dtype = "BF16") {
    header = "{";
    for (const auto& [name, shape] : expected_tensors(parse_config(config, "config.json"))) {
      std::size_t end = data.size() + element;
      for (const std::size_t size : shape) end += (end - data.size()) * (size - 1);
      header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                            header.size() > 1 ? "," : "", name, dtype, shape_text(shape), data.size(), end);
      while (data.size() < end)
        data += static_cast<char>(data.size() % 61);  // bf16: small, finite, no two rows alike
    }
    header += "}";
  }

  Location write_to(const std::filesystem::path& directory) const {
    write_bytes(directory / "config.json", config);
    write_bytes(directory / "generation_config.json", generation);
    write_bytes(directory / weights_name, safetensors_file(header, data));
    for (const auto& [name, bytes] : others) write_bytes(directory / name, bytes);
    return {.spec = directory.string(), .path = directory, .synthetic = {}, .seed = 0, .notice = {}};
  }
};

}  // namespace fs::model::testing

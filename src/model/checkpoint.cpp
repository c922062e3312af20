#include "model/checkpoint.h"

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "model/safetensors.h"
#include "model/synthetic.h"

namespace fs::model {
namespace {

namespace files = std::filesystem;

constexpr std::size_t most_config_bytes = std::size_t{1} << 20;

/// Whether the directory has such an entry, usable or not: a link to nothing is not the same as no file.
bool is_present(const files::path& path) {
  std::error_code ignored;
  return files::symlink_status(path, ignored).type() != files::file_type::not_found;
}

/// The directory of config.json and its companions.
files::path directory_of(const Location& location) {
  std::error_code ignored;
  return files::is_directory(location.path, ignored) ? location.path : location.path.parent_path();
}

/// generation_config.json decides; config.json where that file is absent or does not say. A model that never
/// ends says so by null: with the key nowhere, its makers' intent is unknown.
GenerationConfig read_generation(const files::path& directory, const std::string& config_json,
                                 std::size_t vocab_size) {
  const files::path config = directory / "config.json", generation = directory / "generation_config.json";
  if (is_present(generation)) {
    const std::string json = read_file(generation, most_config_bytes);
    if (auto found = parse_generation_config(json, generation.string(), vocab_size)) return *found;
  }
  if (auto found = parse_generation_config(config_json, config.string(), vocab_size)) return *found;
  fail(ExitCode::unusable,
       "{}: eos_token_id is missing, in generation_config.json as well, expected an id, a list of ids, or "
       "null for none",
       config.string());
}

/// All weights of a synthetic model: one array a tensor, filled by all threads.
Weights generate(const Location& location, const Config& config, ThreadPool& pool, const Progress& progress) {
  constexpr std::size_t chunk = std::size_t{1} << 24;  // elements between two calls of progress: some 50 ms
  std::vector<Tensor> tensors;
  std::vector<std::shared_ptr<const void>> storage;
  const std::size_t total = config.parameters() * sizeof(std::uint16_t);
  std::size_t done = 0;
  for (const TensorShape& tensor : expected_tensors(config)) {
    std::size_t count = 1;
    for (const std::size_t size : tensor.shape) count *= size;
    const auto values = std::make_shared_for_overwrite<std::uint16_t[]>(count);
    const std::span all(values.get(), count);
    for (std::size_t first = 0; first < count; first += chunk) {
      if (progress) progress("synthesize", done, total);
      const auto part = all.subspan(first, std::min(chunk, count - first));
      pool.for_ranges(part.size(), [&](std::size_t begin, std::size_t end) {
        synthesize(location.seed, tensor.name, tensor.shape.back(), first + begin,
                   part.subspan(begin, end - begin));
      });
      done += part.size_bytes();
    }
    tensors.push_back({tensor.name, Dtype::bf16, tensor.shape, std::as_bytes(all), location.spec});
    storage.push_back(values);
  }
  if (progress) progress("synthesize", done, total);
  return assemble(config, tensors, location.spec, std::move(storage));
}

}  // namespace

Checkpoint Checkpoint::open(const Location& location) {
  Checkpoint checkpoint;
  checkpoint.location_ = location;
  if (!location.synthetic.empty()) {
    checkpoint.config_ = synthetic_config(location.synthetic);
    return checkpoint;
  }
  if (location.path.extension() == ".gguf") {
    checkpoint.gguf_ = GgufModel::open(location.path);
    checkpoint.config_ = checkpoint.gguf_->config();
    if (const auto& vocabulary = checkpoint.gguf_->vocabulary()) {
      checkpoint.generation_.eos_ids = end_tokens(*vocabulary);
    }
    return checkpoint;
  }
  const files::path directory = directory_of(location);
  const files::path config = directory / "config.json";
  const std::string json = read_file(config, most_config_bytes);
  checkpoint.config_ = parse_config(json, config.string());
  checkpoint.generation_ = read_generation(directory, json, checkpoint.config_.vocab_size);
  if (is_present(directory / "tokenizer.json")) checkpoint.tokenizer_file_ = directory / "tokenizer.json";
  return checkpoint;
}

std::vector<TensorInfo> Checkpoint::tensors() const {
  std::vector<TensorInfo> table;
  if (!location_.synthetic.empty()) {
    for (const auto& [name, shape] : expected_tensors(config_)) {
      std::size_t bytes = block_bytes(Dtype::bf16);
      for (const std::size_t size : shape) bytes *= size;
      table.push_back({name, std::string(model::name(Dtype::bf16)), shape, bytes, {}});
    }
    return table;
  }
  if (gguf_) {
    for (const GgufTensor& tensor : gguf_->file().tensors) {
      table.push_back({std::string(tensor.name), std::string(layout(tensor.type).name), tensor.shape,
                       tensor.bytes.size(), location_.path});
    }
    return table;
  }
  const TensorFiles files = open_safetensors(location_.path);
  check_tensors(config_, files.tensors, files.source);
  for (const Tensor& tensor : files.tensors) {
    table.push_back(
        {tensor.name, std::string(name(tensor.dtype)), tensor.shape, tensor.bytes.size(), tensor.source});
  }
  return table;
}

std::optional<bool> Checkpoint::redundant_head_equals_embedding() const {
  if (!location_.synthetic.empty() || gguf_) return std::nullopt;
  const TensorFiles files = open_safetensors(location_.path);
  return model::redundant_head_equals_embedding(config_, files.tensors);
}

Weights Checkpoint::load(ThreadPool& pool, const Progress& progress) const {
  if (!location_.synthetic.empty()) return generate(location_, config_, pool, progress);
  if (gguf_) return GgufModel::load(gguf_, pool, progress);
  TensorFiles files = open_safetensors(location_.path);
  return assemble(config_, files.tensors, files.source, {files.files.begin(), files.files.end()});
}

}  // namespace fs::model

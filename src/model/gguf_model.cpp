#include "model/gguf_model.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "model/gguf_config.h"
#include "model/quoted.h"
#include "model/tensor.h"

namespace fs::model {
namespace {

/// Hugging Face's name of every stored tensor. Throws unless the file holds exactly the tensors of `config`.
std::vector<std::string> match_tensors(const GgufFile& file, const Config& config) {
  const std::string& source = file.metadata.source();
  std::unordered_map<std::string, TensorShape> expected;
  for (TensorShape& tensor : expected_tensors(config)) {
    std::string name = gguf_tensor_name(tensor.name);
    expected.emplace(std::move(name), std::move(tensor));
  }
  std::vector<std::string> names;
  for (const GgufTensor& tensor : file.tensors) {
    const auto found = expected.find(std::string(tensor.name));
    if (found == expected.end()) {
      fail(ExitCode::unusable,
           "{}: tensor {} is not expected: no part of the model that the metadata describes", source,
           in_quotes(tensor.name));
    }
    if (tensor.shape != found->second.shape) {
      fail(ExitCode::unusable, "{}: tensor {} has shape {}, expected {} by the metadata", source,
           in_quotes(tensor.name), shape_text(tensor.shape), shape_text(found->second.shape));
    }
    names.push_back(std::move(found->second.name));
    expected.erase(found);
  }
  if (!expected.empty()) {
    const auto first = std::ranges::min_element(expected, {}, [](const auto& item) { return item.first; });
    fail(ExitCode::unusable, "{}: tensor \"{}\"{} missing, expected by the metadata", source, first->first,
         expected.size() > 1 ? fmt::format(" and {} more", expected.size() - 1) : " is");
  }
  return names;
}

std::size_t elements(const GgufTensor& tensor) {
  const GgmlLayout& size = layout(tensor.type);
  return tensor.bytes.size() / size.block_bytes * size.block_elements;
}

}  // namespace

GgufModel::GgufModel(std::optional<MappedFile> map, std::span<const std::byte> bytes,
                     const std::string& source)
    : map_(std::move(map)),
      file_(parse_gguf(bytes, source)),
      config_(parse_gguf_config(file_)),
      vocabulary_(parse_gguf_vocabulary(file_.metadata, config_.vocab_size)),
      names_(match_tensors(file_, config_)) {}

std::shared_ptr<const GgufModel> GgufModel::open(const std::filesystem::path& path) {
  MappedFile map = MappedFile::open(path);
  const auto bytes = map.bytes();  // stay where they are when the map moves
  return std::shared_ptr<const GgufModel>(new GgufModel(std::move(map), bytes, path.string()));
}

std::shared_ptr<const GgufModel> GgufModel::parse(std::span<const std::byte> bytes,
                                                  const std::string& source) {
  return std::shared_ptr<const GgufModel>(new GgufModel(std::nullopt, bytes, source));
}

std::size_t GgufModel::dequantized_bytes() const {
  std::size_t bytes = 0;
  for (const GgufTensor& tensor : file_.tensors) {
    if (!native_dtype(tensor.type)) bytes += elements(tensor) * sizeof(float);
  }
  return bytes;
}

Weights GgufModel::load(const std::shared_ptr<const GgufModel>& self, ThreadPool& pool,
                        const Progress& progress) {
  const std::size_t total = self->dequantized_bytes();
  std::vector<Tensor> tensors;
  std::vector<std::shared_ptr<const void>> storage{self};
  std::size_t done = 0;
  for (std::size_t i = 0; i < self->file_.tensors.size(); ++i) {
    const GgufTensor& stored = self->file_.tensors[i];
    const std::string& source = self->file_.metadata.source();
    if (const auto dtype = native_dtype(stored.type)) {
      tensors.push_back({self->names_[i], *dtype, stored.shape, stored.bytes, source});
      continue;
    }
    if (progress) progress("dequantize", done, total);
    const std::size_t count = elements(stored);
    const auto values = std::make_shared_for_overwrite<float[]>(count);
    const GgmlLayout& size = layout(stored.type);
    pool.for_ranges(count / size.block_elements, [&](std::size_t begin, std::size_t end) {
      dequantize(stored.type, stored.bytes.data() + begin * size.block_bytes,
                 {values.get() + begin * size.block_elements, (end - begin) * size.block_elements});
    });
    done += count * sizeof(float);
    tensors.push_back(
        {self->names_[i], Dtype::f32, stored.shape, std::as_bytes(std::span(values.get(), count)), source});
    storage.push_back(values);
  }
  if (progress && total > 0) progress("dequantize", done, total);
  return assemble(self->config_, tensors, self->file_.metadata.source(), std::move(storage));
}

}  // namespace fs::model

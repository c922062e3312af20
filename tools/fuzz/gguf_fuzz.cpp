// Any bytes as a GGUF file: they are refused with one line, or make a model whose tensors lie inside the file
// one after the other, whose blocks can be decoded and whose vocabulary, if it makes a tokenizer, gives ids
// of its own.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/gguf_model.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(std::span<const std::byte> bytes) {
  const auto model = fs::model::GgufModel::parse(bytes, "fuzz.gguf");
  const std::byte* at = bytes.data();
  for (const fs::model::GgufTensor& tensor : model->file().tensors) {
    require(tensor.bytes.data() >= at);
    at = tensor.bytes.data() + tensor.bytes.size();
    require(at <= bytes.data() + bytes.size());
  }
  for (const auto& [key, value] : model->file().metadata.values()) {
    require(describe(value).find('\n') == std::string::npos);
  }
  fs::ThreadPool pool(1);
  const fs::model::Weights weights = fs::model::GgufModel::load(model, pool, {});
  std::vector<float> row(weights.embed_tokens.cols);
  weights.embed_tokens.row(weights.embed_tokens.rows - 1, row);
  if (const auto& vocabulary = model->vocabulary()) {
    require(vocabulary->tokens.size() == model->config().vocab_size &&
            vocabulary->used() <= vocabulary->types.size());
    for (const fs::TokenId id : end_tokens(*vocabulary)) require(id < vocabulary->tokens.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check(std::as_bytes(std::span(data, size)));
  } catch (const fs::Error& error) {
    require(error.code() == fs::ExitCode::unusable);
    require(std::strchr(error.what(), '\n') == nullptr);
  }
  return 0;
}

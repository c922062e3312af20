#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>

#include "base/checked.h"
#include "base/error.h"
#include "model/quoted.h"
#include "model/safetensors.h"

namespace fs::model {
namespace {

constexpr std::size_t alignment = 8;  // of the first tensor, and so of every element behind it

/// `text` (UTF-8) as a JSON string.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::size_t tensor_bytes(const Tensor& tensor, const std::string& path) {
  if (block_elements(tensor.dtype) != 1) {
    fail(ExitCode::failed, "{}: tensor {}: safetensors has no {}", path, in_quotes(tensor.name),
         name(tensor.dtype));
  }
  std::optional<std::size_t> bytes = block_bytes(tensor.dtype);
  for (const std::size_t size : tensor.shape) {
    if (bytes) bytes = checked_mul(*bytes, size);
  }
  if (!bytes) {
    fail(ExitCode::failed, "{}: tensor {}: shape {} is beyond 64 bits", path, in_quotes(tensor.name),
         shape_text(tensor.shape));
  }
  return *bytes;
}

/// Length and JSON, padded with spaces so that the data behind it is aligned.
std::string header_of(std::span<const Tensor* const> order, const Metadata& metadata,
                      const std::string& path) {
  std::string json = "{";
  if (!metadata.empty()) {
    std::string pairs;
    for (const auto& [key, value] : metadata) {
      pairs += fmt::format("{}{}:{}", pairs.empty() ? "" : ",", json_string(key), json_string(value));
    }
    json += fmt::format("\"__metadata__\":{{{}}}", pairs);
  }
  std::size_t begin = 0;
  std::set<std::string_view> names{"__metadata__"};
  for (const Tensor* tensor : order) {
    if (!names.insert(tensor->name).second) {
      fail(ExitCode::failed, "{}: tensor {} cannot be written: its name is taken", path,
           in_quotes(tensor->name));
    }
    const auto end = checked_add(begin, tensor_bytes(*tensor, path));
    if (!end) fail(ExitCode::failed, "{}: tensors of more than 2^64 bytes", path);
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json == "{" ? "" : ",", json_string(tensor->name), name(tensor->dtype),
                        fmt::join(tensor->shape, ","), begin, *end);
    begin = *end;
  }
  json += '}';
  json.resize((json.size() + alignment - 1) / alignment * alignment, ' ');

  const std::uint64_t length = json.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors,
                       const Metadata& metadata) {
  write_safetensors(path, tensors, metadata,
                    [](const Tensor& tensor, const ByteSink& sink) { sink(tensor.bytes); });
}

void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors,
                       const Metadata& metadata,
                       const std::function<void(const Tensor& tensor, const ByteSink& sink)>& produce,
                       AtomicFile::Existing existing) {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const Tensor* t) { return block_bytes(t->dtype); });
  const std::string header = header_of(order, metadata, path.string());

  AtomicFile file(path, existing);
  file.write(header);
  for (const Tensor* tensor : order) {
    std::size_t left = tensor_bytes(*tensor, path.string());
    const auto mismatch = [&](std::string_view what) {
      fail(ExitCode::failed, "{}: tensor {}: {} bytes than shape {} of {} holds", path.string(),
           in_quotes(tensor->name), what, shape_text(tensor->shape), name(tensor->dtype));
    };
    produce(*tensor, [&](std::span<const std::byte> bytes) {
      if (bytes.size() > left) mismatch("more");
      file.write(bytes);
      left -= bytes.size();
    });
    if (left != 0) mismatch("fewer");
  }
  file.commit();
}

}  // namespace fs::model

// Any bytes are either refused in one line or a set of tensors that lie inside the file, fill it and can be
// decoded. The first byte chooses what the rest is: a safetensors file, its JSON header alone (which the
// fuzzer reaches deeper into: the length is right by construction), or an index of shards.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/safetensors.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_file(std::string_view file) {
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  const std::byte* at = nullptr;
  for (const fs::model::Tensor& tensor : fs::model::parse_safetensors(bytes, "fuzz")) {
    std::size_t count = 1;
    for (const std::size_t size : tensor.shape) count *= size;
    require(count * fs::model::block_bytes(tensor.dtype) == tensor.bytes.size());
    require(at == nullptr || tensor.bytes.data() == at);
    at = tensor.bytes.data() + tensor.bytes.size();
    require(tensor.bytes.data() >= bytes.data() && at <= bytes.data() + bytes.size());
    std::vector<float> values(count);
    fs::model::decode(tensor.dtype, tensor.bytes.data(), values);
  }
  require(at == nullptr || at == bytes.data() + bytes.size());
}

void check_header(std::string_view header) {
  constexpr std::size_t data_bytes = 64;
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  check_file(file.append(header).append(data_bytes, 'x'));
}

void check_index(std::string_view json) {
  for (const auto& [tensor, shard] : fs::model::parse_index(json, "fuzz")) {
    require(shard.find('/') == std::string::npos && shard != ".." && shard.ends_with(".safetensors"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 3) {
      case 0:
        check_file(rest);
        break;
      case 1:
        check_header(rest);
        break;
      case 2:
        check_index(rest);
        break;
    }
  } catch (const fs::Error& error) {
    require(error.code() == fs::ExitCode::unusable);
    require(std::strchr(error.what(), '\n') == nullptr);
  }
  return 0;
}

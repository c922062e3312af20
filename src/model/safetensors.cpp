#include "model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <system_error>
#include <tuple>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "model/json_object.h"
#include "model/quoted.h"

namespace fs::model {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are used where they lie in the file");

constexpr std::size_t length_bytes = 8;           // the header's length, before the header
constexpr std::size_t most_header = 100'000'000;  // as in the safetensors library
constexpr std::size_t most_rank = 8;
constexpr std::size_t most_index = 100'000'000;

/// A tensor and where it lies: [begin, end), in bytes after the header.
struct Entry {
  Tensor tensor;
  std::size_t begin = 0, end = 0;
};

/// The JSON header. Throws unless its length fits the file and the format's limit.
std::string_view header_of(std::span<const std::byte> file, const std::string& source) {
  if (file.size() < length_bytes) {
    fail(ExitCode::unusable, "{}: {} bytes, expected a safetensors file of at least {}", source, file.size(),
         length_bytes);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), length_bytes);
  const std::size_t most = std::min(most_header, file.size() - length_bytes);
  if (length > most) {
    fail(ExitCode::unusable,
         "{}: header length is {}, expected at most {} (file of {} bytes): cut off, or no safetensors",
         source, length, most, file.size());
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + length_bytes, length);
  if (!header.starts_with('{'))
    fail(ExitCode::unusable, "{}: header does not start with {{: no safetensors", source);
  return header;
}

std::vector<std::size_t> read_sizes(const JsonObject& object, std::string_view key, std::size_t least,
                                    std::size_t most) {
  const std::string expected = least == most
                                   ? fmt::format("an array of {} non-negative integers", least)
                                   : fmt::format("an array of at most {} non-negative integers", most);
  const auto value = object.at(key, expected);
  simdjson::dom::array items;
  if (value.get(items) || items.size() < least || items.size() > most) object.reject(key, value, expected);
  std::vector<std::size_t> sizes;
  for (const simdjson::dom::element item : items) {
    std::uint64_t size = 0;
    if (item.get(size)) object.reject(key, item, expected);
    sizes.push_back(size);
  }
  return sizes;
}

Entry read_entry(std::string_view tensor_name, simdjson::dom::element value, const std::string& source) {
  const JsonObject object(value, fmt::format("{}: tensor {}", source, in_quotes(tensor_name)));
  for (const auto field : object.fields()) {
    if (field.key != "dtype" && field.key != "shape" && field.key != "data_offsets") {
      fail(ExitCode::unusable, "{}: unknown key {}, expected dtype, shape and data_offsets", object.where(),
           in_quotes(field.key));
    }
  }
  const auto dtype = dtype_from_name(object.text("dtype"));
  if (!dtype) object.reject("dtype", *object.find("dtype"), "BF16, F16 or F32");

  Entry entry;
  entry.tensor = {std::string(tensor_name), *dtype, read_sizes(object, "shape", 0, most_rank), {}, source};
  const auto offsets = read_sizes(object, "data_offsets", 2, 2);
  entry.begin = offsets[0];
  entry.end = offsets[1];
  std::optional<std::size_t> bytes = block_bytes(*dtype);
  for (const std::size_t size : entry.tensor.shape) {
    if (bytes) bytes = checked_mul(*bytes, size);
  }
  if (entry.begin > entry.end || bytes != entry.end - entry.begin) {
    fail(ExitCode::unusable, "{}: data_offsets [{}, {}], expected {} bytes for shape {} of {}",
         object.where(), entry.begin, entry.end, bytes ? fmt::format("{}", *bytes) : "more than 2^64",
         shape_text(entry.tensor.shape), name(*dtype));
  }
  return entry;
}

Metadata read_metadata(simdjson::dom::element value, const std::string& source) {
  const JsonObject object(value, source + ": __metadata__");
  Metadata metadata;
  for (const auto field : object.fields()) {
    std::string_view text;
    if (field.value.get(text)) object.reject(in_quotes(field.key), field.value, "a string");
    metadata.emplace(field.key, text);
  }
  return metadata;
}

/// Orders the entries and throws unless they fill the data exactly: in the file, no overlap, no gap, nothing
/// behind.
void check_layout(std::vector<Entry>& entries, std::size_t data_size, const std::string& source) {
  for (const Entry& entry : entries) {
    if (entry.end > data_size) {
      fail(ExitCode::unusable,
           "{}: tensor {}: ends at byte {} of the data, expected at most {}: the file is cut off", source,
           in_quotes(entry.tensor.name), entry.end, data_size);
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::size_t reached = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != reached) {
      fail(ExitCode::unusable, "{}: tensor {}: begins at byte {} of the data, expected {}: {}", source,
           in_quotes(entry.tensor.name), entry.begin, reached,
           entry.begin < reached ? "it overlaps the tensor before" : "there is a gap before it");
    }
    reached = entry.end;
  }
  if (reached != data_size) {
    fail(ExitCode::unusable, "{}: {} bytes behind the last tensor, expected none", source,
         data_size - reached);
  }
}

/// Adds the tensors of one file and keeps the file mapped.
void map_file(const std::filesystem::path& path, TensorFiles& to) {
  const auto file = std::make_shared<const MappedFile>(MappedFile::open(path));
  auto tensors = parse_safetensors(file->bytes(), path.string());
  std::move(tensors.begin(), tensors.end(), std::back_inserter(to.tensors));
  to.files.push_back(file);
}

/// Maps every shard of an index and throws unless each holds exactly the tensors that the index says.
void map_shards(const std::filesystem::path& index, TensorFiles& to) {
  const std::string json = read_file(index, most_index);
  const auto weight_map = parse_index(json, index.string());
  for (auto begin = weight_map.begin(); begin != weight_map.end();) {
    const std::string& shard = begin->second;
    const auto end =
        std::find_if(begin, weight_map.end(), [&](const auto& item) { return item.second != shard; });
    const std::size_t first = to.tensors.size();
    map_file(index.parent_path() / shard, to);
    std::vector<std::string_view> stored;
    for (std::size_t i = first; i < to.tensors.size(); ++i) stored.push_back(to.tensors[i].name);
    std::sort(stored.begin(), stored.end());
    for (auto item = begin; item != end; ++item) {
      if (!std::binary_search(stored.begin(), stored.end(), item->first)) {
        fail(ExitCode::unusable, "{}: tensor {} is not in {}, where the index says it is", index.string(),
             in_quotes(item->first), shard);
      }
    }
    for (const std::string_view tensor : stored) {
      const auto found =
          std::lower_bound(begin, end, tensor, [](const auto& a, auto b) { return a.first < b; });
      if (found == end || found->first != tensor) {
        fail(ExitCode::unusable, "{}: {} holds tensor {}, which the index does not list there",
             index.string(), shard, in_quotes(tensor));
      }
    }
    begin = end;
  }
}

}  // namespace

std::vector<Tensor> parse_safetensors(std::span<const std::byte> file, const std::string& source) {
  const std::string_view header = header_of(file, source);
  const auto data = file.subspan(length_bytes + header.size());
  const JsonDocument document = JsonDocument::parse(header, source + ": header");
  check_unique_keys(document);
  const JsonObject object(document.root(), document.source());

  std::vector<Entry> entries;
  for (const auto field : object.fields()) {
    if (field.key == "__metadata__") {
      read_metadata(field.value, source);
    } else {
      entries.push_back(read_entry(field.key, field.value, source));
    }
  }
  check_layout(entries, data.size(), source);

  std::vector<Tensor> tensors;
  tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    tensors.push_back(std::move(entry.tensor));
  }
  return tensors;
}

Metadata parse_metadata(std::span<const std::byte> file, const std::string& source) {
  const JsonDocument document = JsonDocument::parse(header_of(file, source), source + ": header");
  const auto value = JsonObject(document.root(), document.source()).find("__metadata__");
  return value ? read_metadata(*value, source) : Metadata{};
}

std::vector<std::pair<std::string, std::string>> parse_index(std::string_view json,
                                                             const std::string& source) {
  const JsonDocument document = JsonDocument::parse(json, source);
  check_unique_keys(document);
  const JsonObject object(document.root(), source);
  const JsonObject map(object.at("weight_map", "an object of tensor → shard"), source + ": weight_map");

  std::vector<std::pair<std::string, std::string>> shards;
  for (const auto field : map.fields()) {
    std::string_view shard;
    // A leading dot is refused as well: it would make ".." and hidden files possible.
    if (field.value.get(shard) || shard.starts_with('.') || !shard.ends_with(".safetensors") ||
        shard.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos) {
      map.reject(in_quotes(field.key), field.value, "the name of a .safetensors file beside the index");
    }
    shards.emplace_back(field.key, shard);
  }
  if (shards.empty()) fail(ExitCode::unusable, "{}: weight_map is empty, expected tensor → shard", source);
  std::sort(shards.begin(), shards.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second, a.first) < std::tie(b.second, b.first);
  });
  return shards;
}

TensorFiles open_safetensors(const std::filesystem::path& path) {
  std::error_code ignored;
  TensorFiles files;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    file = path / "model.safetensors";
    const auto index = path / "model.safetensors.index.json";
    if (!std::filesystem::exists(file, ignored)) {
      if (!std::filesystem::exists(index, ignored)) {
        fail(ExitCode::unusable,
             "{}: no weights: expected model.safetensors or model.safetensors.index.json there",
             path.string());
      }
      files.source = index.string();
      map_shards(index, files);
      return files;
    }
  }
  files.source = file.string();
  map_file(file, files);
  return files;
}

}  // namespace fs::model

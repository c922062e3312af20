#include "model/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "base/checked.h"
#include "base/error.h"
#include "model/quoted.h"
#include "model/tensor.h"

namespace fs::model {
namespace {

static_assert(std::endian::native == std::endian::little, "values are used where they lie in the file");

constexpr std::size_t most_rank = 4;          // as in ggml
constexpr std::size_t most_name = 64 * 1024;  // of a key or a tensor, as in the format's definition
constexpr std::size_t most_alignment = std::size_t{1} << 20;
constexpr std::size_t default_alignment = 32;
constexpr std::size_t least_pair_bytes = 8 + 4 + 1;  // an empty key, its type, one byte
constexpr std::size_t least_tensor_bytes = 8 + 4 + 8 + 4 + 8;

/// Reads a file from front to back; nothing is read that is not there.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& source) : file_(file), source_(source) {}

  std::size_t position() const { return at_; }
  std::size_t left() const { return file_.size() - at_; }

  std::span<const std::byte> take(std::size_t size, std::string_view what) {
    if (size > left()) {
      fail(ExitCode::unusable, "{}: {} at byte {}: {} bytes expected, {} left: the file is cut off", source_,
           what, at_, size, left());
    }
    const auto bytes = file_.subspan(at_, size);
    at_ += size;
    return bytes;
  }

  template <class Number>
  Number number(std::string_view what) {
    Number value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }

  /// The bytes of a string.
  std::span<const std::byte> string(std::string_view what) {
    const auto length = number<std::uint64_t>(what);
    if (length > left()) {
      fail(ExitCode::unusable, "{}: {} at byte {}: a string of {} bytes, expected at most {}", source_, what,
           at_, length, left());
    }
    return take(length, what);
  }

  /// A key or a tensor's name.
  std::string_view name(std::string_view what) {
    const auto bytes = string(what);
    if (bytes.empty() || bytes.size() > most_name) {
      fail(ExitCode::unusable, "{}: {} at byte {}: a name of {} bytes, expected 1 to {}", source_, what, at_,
           bytes.size(), most_name);
    }
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// How many there are of something that takes at least `least_bytes` each.
  std::size_t count(std::size_t least_bytes, std::string_view what) {
    const auto count = number<std::uint64_t>(what);
    check_count(count, least_bytes, what);
    return count;
  }
  void check_count(std::uint64_t count, std::size_t least_bytes, std::string_view what) const {
    if (count > left() / least_bytes) {
      fail(ExitCode::unusable, "{}: {} is {}, expected at most {} in the {} bytes that are left", source_,
           what, count, left() / least_bytes, left());
    }
  }

 private:
  std::span<const std::byte> file_;
  const std::string& source_;
  std::size_t at_ = 0;
};

/// Magic and version. Returns the version.
std::uint32_t read_version(Cursor& cursor, const std::string& source) {
  const auto magic = cursor.take(std::min<std::size_t>(4, cursor.left()), "magic");
  const std::string_view found(reinterpret_cast<const char*>(magic.data()), magic.size());
  if (found != "GGUF") {
    fail(ExitCode::unusable, "{}: starts with {}, expected \"GGUF\": no GGUF file", source, in_quotes(found));
  }
  const auto version = cursor.number<std::uint32_t>("version");
  if (version != 0 && (version & 0xFFFFU) == 0) {
    fail(ExitCode::unusable, "{}: a big-endian GGUF file, expected a little-endian one", source);
  }
  if (version != 2 && version != 3) {
    fail(ExitCode::unusable, "{}: GGUF version is {}, expected 2 or 3", source, version);
  }
  return version;
}

GgufValueType read_value_type(Cursor& cursor, const std::string& source, std::string_view key) {
  const auto type = cursor.number<std::uint32_t>("value type");
  if (type > static_cast<std::uint32_t>(GgufValueType::f64)) {
    fail(ExitCode::unusable, "{}: {}: value type is {}, expected 0 to {}", source, in_quotes(key), type,
         static_cast<std::uint32_t>(GgufValueType::f64));
  }
  return static_cast<GgufValueType>(type);
}

GgufValue read_array(Cursor& cursor, const std::string& source, std::string_view key) {
  GgufValue value{.type = GgufValueType::array, .element = {}, .count = 0, .bytes = {}};
  value.element = read_value_type(cursor, source, key);
  if (value.element == GgufValueType::array) {
    fail(ExitCode::unusable, "{}: {}: an array of arrays, expected an array of numbers or strings", source,
         in_quotes(key));
  }
  const std::string what = fmt::format("{}: length of the array", in_quotes(key));
  if (value.element != GgufValueType::string) {
    const std::size_t size = value_bytes(value.element);
    value.count = cursor.count(size, what);
    value.bytes = cursor.take(value.count * size, what);  // fits: count() has checked it
    return value;
  }
  value.count = cursor.count(sizeof(std::uint64_t), what);
  Cursor begin = cursor;
  for (std::size_t i = 0; i < value.count; ++i) cursor.string(in_quotes(key));
  value.bytes = begin.take(cursor.position() - begin.position(), what);
  return value;
}

GgufValue read_value(Cursor& cursor, const std::string& source, std::string_view key) {
  const GgufValueType type = read_value_type(cursor, source, key);
  if (type == GgufValueType::array) return read_array(cursor, source, key);
  GgufValue value{.type = type, .element = type, .count = 1, .bytes = {}};
  if (type == GgufValueType::string) {
    value.bytes = cursor.string(in_quotes(key));
    return value;
  }
  value.bytes = cursor.take(value_bytes(type), in_quotes(key));
  if (type == GgufValueType::boolean && std::to_integer<int>(value.bytes[0]) > 1) {
    fail(ExitCode::unusable, "{}: {}: boolean is {}, expected 0 or 1", source, in_quotes(key),
         std::to_integer<int>(value.bytes[0]));
  }
  return value;
}

std::size_t read_alignment(const GgufMetadata& metadata) {
  constexpr std::string_view key = "general.alignment";
  const auto found = metadata.find_integer(key, 1, most_alignment);
  if (found && !std::has_single_bit(*found)) metadata.reject(key, "a power of two");
  return found.value_or(default_alignment);
}

/// A tensor as the table describes it: where it lies is checked later.
struct Entry {
  GgufTensor tensor;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
};

Entry read_entry(Cursor& cursor, const std::string& source) {
  Entry entry;
  entry.tensor.name = cursor.name("tensor name");
  const std::string where = fmt::format("{}: tensor {}", source, in_quotes(entry.tensor.name));
  const auto rank = cursor.number<std::uint32_t>("tensor rank");
  if (rank < 1 || rank > most_rank) {
    fail(ExitCode::unusable, "{}: {} dimensions, expected 1 to {}", where, rank, most_rank);
  }
  entry.tensor.shape.resize(rank);
  for (std::size_t i = rank; i-- > 0;) {  // fastest first in the file, last here
    const auto size = cursor.number<std::uint64_t>("tensor size");
    if (size == 0) fail(ExitCode::unusable, "{}: a dimension is 0, expected at least 1", where);
    entry.tensor.shape[i] = size;
  }
  const auto type = cursor.number<std::uint32_t>("tensor type");
  const GgmlLayout* const layout = find_layout(type);
  if (layout == nullptr) {
    fail(ExitCode::unusable,
         "{}: {} is not implemented, expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K or Q6_K", where,
         ggml_type_name(type));
  }
  entry.tensor.type = layout->type;
  const std::size_t cols = entry.tensor.shape.back();
  if (cols % layout->block_elements != 0) {
    fail(ExitCode::unusable, "{}: rows of {} elements, expected a multiple of {} for {}", where, cols,
         layout->block_elements, layout->name);
  }
  std::optional<std::size_t> bytes = checked_mul(cols / layout->block_elements, layout->block_bytes);
  for (std::size_t i = 0; i + 1 < rank; ++i) {
    if (bytes) bytes = checked_mul(*bytes, entry.tensor.shape[i]);
  }
  if (!bytes) {
    fail(ExitCode::unusable, "{}: shape {} of {} takes more than 2^64 bytes", where,
         shape_text(entry.tensor.shape), layout->name);
  }
  entry.bytes = *bytes;
  entry.offset = cursor.number<std::uint64_t>("tensor offset");
  return entry;
}

/// `size` up to the next multiple of a power of two; nothing on overflow.
std::optional<std::size_t> align_up(std::size_t size, std::size_t alignment) {
  const auto sum = checked_add(size, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

/// Puts every tensor in its place. Throws unless they follow each other in the data, each at the next
/// multiple of the alignment, and end where the file does (which may be padded).
std::vector<GgufTensor> place(std::vector<Entry> entries, std::span<const std::byte> data,
                              std::size_t alignment, const std::string& source) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
  std::vector<GgufTensor> tensors;
  tensors.reserve(entries.size());
  std::size_t reached = 0;  // the next multiple of the alignment behind the tensor before
  for (Entry& entry : entries) {
    const std::string where = fmt::format("{}: tensor {}", source, in_quotes(entry.tensor.name));
    if (entry.offset % alignment != 0) {
      fail(ExitCode::unusable, "{}: offset is {}, expected a multiple of the alignment {}", where,
           entry.offset, alignment);
    }
    if (entry.offset != reached) {
      fail(ExitCode::unusable, "{}: offset is {}, expected {}: {}", where, entry.offset, reached,
           entry.offset < reached ? "it overlaps the tensor before" : "there is a gap before it");
    }
    const auto end = checked_add(entry.offset, entry.bytes);
    if (!end || *end > data.size()) {
      fail(ExitCode::unusable, "{}: {} bytes at {} of the data, which has {}: the file is cut off", where,
           entry.bytes, entry.offset, data.size());
    }
    entry.tensor.bytes = data.subspan(entry.offset, entry.bytes);
    tensors.push_back(std::move(entry.tensor));
    reached = align_up(*end, alignment).value_or(SIZE_MAX);
  }
  if (data.size() > reached) {
    fail(ExitCode::unusable, "{}: {} bytes behind the last tensor, expected none", source,
         data.size() - reached);
  }
  return tensors;
}

}  // namespace

GgufFile parse_gguf(std::span<const std::byte> file, const std::string& source) {
  Cursor cursor(file, source);
  GgufFile gguf{.version = read_version(cursor, source), .metadata = GgufMetadata(source), .tensors = {}};
  const auto n_tensors = cursor.number<std::uint64_t>("number of tensors");
  const auto n_pairs = cursor.count(least_pair_bytes, "number of metadata pairs");
  cursor.check_count(n_tensors, least_tensor_bytes, "number of tensors");

  for (std::size_t i = 0; i < n_pairs; ++i) {
    const std::string_view key = cursor.name("key");
    if (!gguf.metadata.insert(key, read_value(cursor, source, key))) {
      fail(ExitCode::unusable, "{}: {} is there twice", source, in_quotes(key));
    }
  }
  const std::size_t alignment = read_alignment(gguf.metadata);

  std::vector<Entry> entries;
  entries.reserve(std::min<std::size_t>(n_tensors, cursor.left() / least_tensor_bytes));
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < n_tensors; ++i) {
    entries.push_back(read_entry(cursor, source));
    if (!names.insert(entries.back().tensor.name).second) {
      fail(ExitCode::unusable, "{}: tensor {} is there twice", source, in_quotes(entries.back().tensor.name));
    }
  }
  const std::size_t begin = align_up(cursor.position(), alignment).value_or(file.size());
  const auto data = file.subspan(std::min(begin, file.size()));
  gguf.tensors = place(std::move(entries), data, alignment, source);
  return gguf;
}

}  // namespace fs::model

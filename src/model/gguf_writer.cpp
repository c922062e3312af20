#include "model/gguf_writer.h"

#include <array>
#include <cstring>

#include "base/atomic_file.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/quoted.h"
#include "model/tensor.h"

namespace fs::model {
namespace {

constexpr std::size_t alignment = 32;

template <class Number>
void append(std::string& bytes, Number value) {
  std::array<char, sizeof value> raw;
  std::memcpy(raw.data(), &value, sizeof value);
  bytes.append(raw.data(), raw.size());
}

void append_text(std::string& bytes, std::string_view text) {
  append(bytes, std::uint64_t{text.size()});
  bytes.append(text);
}

std::size_t padding_of(std::size_t size) { return (alignment - size % alignment) % alignment; }

std::size_t slot_bytes(const GgufSlot& slot, const std::string& path) {
  const GgmlLayout& size = layout(slot.type);
  const std::size_t cols = slot.shape.back();
  std::optional<std::size_t> bytes = checked_mul(cols / size.block_elements, size.block_bytes);
  for (std::size_t i = 0; i + 1 < slot.shape.size(); ++i) {
    if (bytes) bytes = checked_mul(*bytes, slot.shape[i]);
  }
  if (!bytes || cols % size.block_elements != 0) {
    fail(ExitCode::failed, "{}: tensor {}: shape {} cannot be written as {}: rows are no multiple of {}",
         path, in_quotes(slot.name), shape_text(slot.shape), size.name, size.block_elements);
  }
  return *bytes;
}

}  // namespace

void GgufPairs::begin(std::string_view key, GgufValueType type) {
  ++count_;
  append_text(bytes_, key);
  append(bytes_, static_cast<std::uint32_t>(type));
}

void GgufPairs::add_u32(std::string_view key, std::uint32_t value) {
  begin(key, GgufValueType::u32);
  append(bytes_, value);
}

void GgufPairs::add_f32(std::string_view key, float value) {
  begin(key, GgufValueType::f32);
  append(bytes_, value);
}

void GgufPairs::add_boolean(std::string_view key, bool value) {
  begin(key, GgufValueType::boolean);
  append(bytes_, static_cast<std::uint8_t>(value));
}

void GgufPairs::add_text(std::string_view key, std::string_view value) {
  begin(key, GgufValueType::string);
  append_text(bytes_, value);
}

void GgufPairs::add_i32s(std::string_view key, std::span<const std::int32_t> values) {
  begin(key, GgufValueType::array);
  append(bytes_, static_cast<std::uint32_t>(GgufValueType::i32));
  append(bytes_, std::uint64_t{values.size()});
  for (const std::int32_t value : values) append(bytes_, value);
}

void GgufPairs::add_texts(std::string_view key, std::span<const std::string_view> values) {
  begin(key, GgufValueType::array);
  append(bytes_, static_cast<std::uint32_t>(GgufValueType::string));
  append(bytes_, std::uint64_t{values.size()});
  for (const std::string_view value : values) append_text(bytes_, value);
}

void write_gguf(const std::filesystem::path& path, const GgufPairs& pairs, std::span<const GgufSlot> tensors,
                const std::function<void(std::size_t tensor, const ByteSink& sink)>& produce,
                AtomicFile::Existing existing) {
  constexpr std::uint32_t version = 3;
  std::string header = "GGUF";
  append(header, version);
  append(header, std::uint64_t{tensors.size()});
  append(header, pairs.count());
  header += pairs.bytes();
  std::size_t offset = 0;
  for (const GgufSlot& slot : tensors) {
    append_text(header, slot.name);
    append(header, static_cast<std::uint32_t>(slot.shape.size()));
    for (std::size_t i = slot.shape.size(); i-- > 0;) append(header, std::uint64_t{slot.shape[i]});
    append(header, static_cast<std::uint32_t>(slot.type));
    append(header, std::uint64_t{offset});
    const std::size_t bytes = slot_bytes(slot, path.string());
    offset += bytes + padding_of(bytes);
  }
  header.append(padding_of(header.size()), '\0');

  AtomicFile file(path, existing);
  file.write(header);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t bytes = slot_bytes(tensors[i], path.string());
    std::size_t left = bytes;
    const auto mismatch = [&](std::string_view what) {
      fail(ExitCode::failed, "{}: tensor {}: {} bytes than shape {} of {} holds", path.string(),
           in_quotes(tensors[i].name), what, shape_text(tensors[i].shape), layout(tensors[i].type).name);
    };
    produce(i, [&](std::span<const std::byte> part) {
      if (part.size() > left) mismatch("more");
      file.write(part);
      left -= part.size();
    });
    if (left != 0) mismatch("fewer");
    file.write(std::string(padding_of(bytes), '\0'));
  }
  file.commit();
}

}  // namespace fs::model

#include "engine/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "model/dtype.h"

namespace fs::engine {
namespace {

bool has_heads(TapPoint point) {
  return point == TapPoint::q || point == TapPoint::k || point == TapPoint::v || point == TapPoint::attn_out;
}

std::string_view position_key(TapPoint point) {
  return point == TapPoint::logits ? "first_position.logits" : "first_position";
}

/// The inverse of tap_key(); nothing for another name.
std::optional<std::pair<TapPoint, std::size_t>> parse_tap_key(std::string_view key) {
  constexpr std::string_view prefix = "layers.";
  std::size_t layer = 0;
  if (key.starts_with(prefix)) {
    const char* const begin = key.data() + prefix.size();
    const auto [end, error] = std::from_chars(begin, key.data() + key.size(), layer);
    if (error != std::errc{} || end == key.data() + key.size() || *end != '.') return std::nullopt;
    key.remove_prefix(static_cast<std::size_t>(end + 1 - key.data()));
    const auto point = tap_point_from_name(key);
    return point && per_layer(*point) ? std::optional(std::pair(*point, layer)) : std::nullopt;
  }
  const auto point = tap_point_from_name(key);
  return point && !per_layer(*point) ? std::optional(std::pair(*point, layer)) : std::nullopt;
}

/// More than any model has: what a damaged file says is not counted up to.
constexpr std::size_t most_layers = 4096, most_positions = std::size_t{1} << 40;

}  // namespace

std::strong_ordering Recording::Key::operator<=>(const Key& other) const {
  const auto time = [](const Key& key) {
    const int part = per_layer(key.point) ? 1 : key.point == TapPoint::embed ? 0 : 2;
    return std::tuple(part, key.layer, key.point);
  };
  return time(*this) <=> time(other);
}

Recording Recording::read(const std::filesystem::path& path) {
  const MappedFile file = MappedFile::open(path);
  const std::string source = path.string();
  Recording recording;
  recording.metadata_ = model::parse_metadata(file.bytes(), source);
  for (const model::Tensor& tensor : model::parse_safetensors(file.bytes(), source)) {
    const auto tap = parse_tap_key(tensor.name);
    if (!tap)
      fail(ExitCode::unusable, "{}: tensor {} is no tap; expected names like layers.3.mlp_act", source,
           tensor.name);
    if (tap->second >= most_layers) {
      fail(ExitCode::unusable, "{}: tensor {} is of layer {}; expected less than {}", source, tensor.name,
           tap->second, most_layers);
    }
    const std::size_t rank = has_heads(tap->first) ? 3 : 2;
    if (tensor.shape.size() != rank || tensor.bytes.empty()) {
      fail(ExitCode::unusable, "{}: tensor {} has shape {}; expected {}", source, tensor.name,
           model::shape_text(tensor.shape), rank == 3 ? "[rows, heads, head_dim]" : "[rows, width]");
    }
    const std::string key(position_key(tap->first));
    const auto found = recording.metadata_.find(key);
    std::size_t first_position = 0;
    if (found != recording.metadata_.end()) {
      const std::string& text = found->second;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), first_position);
      if (error != std::errc{} || end != text.data() + text.size() || first_position >= most_positions) {
        fail(ExitCode::unusable, "{}: metadata {} is \"{}\"; expected a position below {}", source, key, text,
             most_positions);
      }
    } else {
      fail(ExitCode::unusable, "{}: no metadata {}; expected a file of fs or tools/dump_hf.py", source, key);
    }
    Rows rows{first_position, tensor.shape[0], rank == 3 ? tensor.shape[1] : 1, tensor.shape.back(), {}};
    rows.values.resize(tensor.bytes.size() / model::block_bytes(tensor.dtype));  // one element a block
    model::decode(tensor.dtype, tensor.bytes.data(), rows.values);
    recording.taps_.emplace(Key{tap->first, tap->second}, std::move(rows));
  }
  if (recording.taps_.empty()) fail(ExitCode::unusable, "{}: no taps in it", source);
  return recording;
}

void Recording::append(const Tap& tap) {
  const auto [found, first] =
      taps_.try_emplace(Key{tap.point, tap.layer}, Rows{tap.first_position, 0, tap.heads, tap.width, {}});
  Rows& rows = found->second;
  if (tap.first_position != rows.end()) {
    fail(ExitCode::failed,
         "recording {}: rows from position {} after those of {} to {}; record consecutive positions of one "
         "session",
         tap_key(tap.point, tap.layer), tap.first_position, rows.first_position, rows.end() - 1);
  }
  if (tap.heads != rows.heads || tap.width != rows.width) {
    fail(ExitCode::failed,
         "recording {}: rows of shape [{}, {}] after rows of shape [{}, {}]; record one session",
         tap_key(tap.point, tap.layer), tap.heads, tap.width, rows.heads, rows.width);
  }
  rows.values.insert(rows.values.end(), tap.values.begin(), tap.values.end());
  rows.rows += tap.rows;
}

void Recording::write(const std::filesystem::path& path, model::Metadata metadata) const {
  if (taps_.empty()) {
    fail(ExitCode::failed, "{}: nothing was recorded; no forward call produced a tap that was asked for",
         path.string());
  }
  const auto& [some_key, some] = *taps_.begin();
  std::vector<model::Tensor> tensors;
  for (const auto& [key, rows] : taps_) {
    const std::string name = tap_key(key.point, key.layer);
    if (rows.end() != some.end()) {
      fail(ExitCode::failed, "{}: {} ends at position {} but {} at {}: a forward call failed half way",
           path.string(), name, rows.end(), tap_key(some_key.point, some_key.layer), some.end());
    }
    std::vector<std::size_t> shape{rows.rows, rows.width};
    if (has_heads(key.point)) shape.insert(shape.begin() + 1, rows.heads);
    tensors.push_back({name, model::Dtype::f32, std::move(shape), std::as_bytes(std::span(rows.values)), {}});
    metadata[std::string(position_key(key.point))] = std::to_string(rows.first_position);
  }
  model::write_safetensors(path, tensors, metadata);
}

std::optional<Tap> Recording::find(const Tap& b) {
  const auto found = taps_.find(Key{b.point, b.layer});
  if (found == taps_.end()) return std::nullopt;
  Rows& rows = found->second;
  if (b.first_position < rows.first_position || b.first_position + b.rows > rows.end()) return std::nullopt;
  const std::size_t size = rows.heads * rows.width;
  return Tap{b.point,
             b.layer,
             b.run,
             b.first_position,
             b.rows,
             rows.heads,
             rows.width,
             std::span(rows.values).subspan((b.first_position - rows.first_position) * size, b.rows * size)};
}

std::size_t Recording::n_layers() const {
  std::size_t layers = 0;
  for (const auto& [key, rows] : taps_) layers = std::max(layers, per_layer(key.point) ? key.layer + 1 : 0);
  return layers;
}

void Recording::replay(TapObserver& observer) {
  for (auto& [key, rows] : taps_) {
    if (!observer.wants(key.point, key.layer)) continue;
    observer.observe(
        {key.point, key.layer, 0, rows.first_position, rows.rows, rows.heads, rows.width, rows.values});
  }
}

}  // namespace fs::engine

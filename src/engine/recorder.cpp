#include "engine/recorder.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace fs::engine {
namespace {

bool has_heads(TapPoint point) {
  return point == TapPoint::q || point == TapPoint::k || point == TapPoint::v || point == TapPoint::attn_out;
}

}  // namespace

std::strong_ordering Recorder::Key::operator<=>(const Key& other) const {
  const auto time = [](const Key& key) {
    const int part = per_layer(key.point) ? 1 : key.point == TapPoint::embed ? 0 : 2;
    return std::tuple(part, key.layer, key.point);
  };
  return time(*this) <=> time(other);
}

bool Recorder::wants(TapPoint point, std::size_t layer) const {
  return options_.points.contains(point) &&
         (!per_layer(point) || !options_.layers || options_.layers->contains(layer));
}

void Recorder::observe(const Tap& tap) {
  const auto [found, first] = recordings_.try_emplace(
      Key{tap.point, tap.layer}, Recording{tap.first_position, 0, tap.heads, tap.width, {}});
  Recording& recording = found->second;
  if (tap.first_position != recording.end()) {
    fail(ExitCode::failed,
         "recording {}: rows from position {} after those of {} to {}; record consecutive positions of one "
         "session",
         tap_key(tap.point, tap.layer), tap.first_position, recording.first_position, recording.end() - 1);
  }
  if (tap.heads != recording.heads || tap.width != recording.width) {
    fail(ExitCode::failed,
         "recording {}: rows of shape [{}, {}] after rows of shape [{}, {}]; record one session",
         tap_key(tap.point, tap.layer), tap.heads, tap.width, recording.heads, recording.width);
  }
  recording.values.insert(recording.values.end(), tap.values.begin(), tap.values.end());
  recording.rows += tap.rows;
}

void Recorder::write(const std::filesystem::path& path, model::Metadata metadata) const {
  if (recordings_.empty()) {
    fail(ExitCode::failed, "{}: nothing was recorded; no forward call produced a tap that was asked for",
         path.string());
  }
  const auto& [some_key, some] = *recordings_.begin();
  std::vector<model::Tensor> tensors;
  for (const auto& [key, recording] : recordings_) {
    const std::string name = tap_key(key.point, key.layer);
    if (recording.end() != some.end()) {
      fail(ExitCode::failed, "{}: {} ends at position {} but {} at {}: a forward call failed half way",
           path.string(), name, recording.end(), tap_key(some_key.point, some_key.layer), some.end());
    }
    std::vector<std::size_t> shape{recording.rows, recording.width};
    if (has_heads(key.point)) shape.insert(shape.begin() + 1, recording.heads);
    tensors.push_back(
        {name, model::Dtype::f32, std::move(shape), std::as_bytes(std::span(recording.values)), {}});
    metadata[key.point == TapPoint::logits ? "first_position.logits" : "first_position"] =
        std::to_string(recording.first_position);
  }
  model::write_safetensors(path, tensors, metadata);
}

}  // namespace fs::engine

#pragma once
#include <compare>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/tap.h"
#include "model/safetensors.h"

namespace fs::engine {

/// Which taps a Recorder keeps.
struct RecorderOptions {
  std::set<TapPoint> points;
  std::optional<std::set<std::size_t>> layers;  ///< of the points that belong to one; unset: every layer
};

/// Keeps chosen taps of one session in memory and writes them as one safetensors file. Rows of several
/// forward calls (the chunks of a prefill, then the steps of a decode) are joined.
class Recorder final : public TapObserver {
 public:
  explicit Recorder(RecorderOptions options) : options_(std::move(options)) {}

  bool wants(TapPoint point, std::size_t layer) const override;

  /// Appends the tap's rows. Throws Error(failed) naming the tap if they do not follow the rows it has (a
  /// session that was rewound, or another session) or have another shape.
  void observe(const Tap& tap) override;

  /// Writes F32 tensors named tap_key(), in the order of a forward pass: [rows, heads, head_dim] for q, k, v
  /// and attn_out, [rows, width] for the others. To `metadata` it adds "first_position", the absolute
  /// position of row 0, and, as only the last prompt token may have them, "first_position.logits". The bytes
  /// depend on the recorded values and `metadata` alone. Throws Error(failed) if nothing was recorded, if
  /// taps end at different positions (a pass that failed half way), or if the file cannot be written.
  void write(const std::filesystem::path& path, model::Metadata metadata) const;

 private:
  /// Orders taps as one forward pass produces them.
  struct Key {
    TapPoint point;
    std::size_t layer;
    std::strong_ordering operator<=>(const Key& other) const;
  };
  struct Recording {
    std::size_t first_position, rows, heads, width;
    std::vector<float> values;  // [rows, heads, width]
    std::size_t end() const { return first_position + rows; }
  };

  RecorderOptions options_;
  std::map<Key, Recording> recordings_;
};

}  // namespace fs::engine

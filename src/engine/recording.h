#pragma once
#include <compare>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "engine/diff.h"
#include "engine/tap.h"
#include "model/safetensors.h"

namespace fs::engine {

/// Taps of one session, in memory, with a safetensors file as their other form: F32 tensors named tap_key()
/// in the order of a forward pass, [rows, heads, head_dim] for q, k, v and attn_out, [rows, width] for the
/// others. The metadata has "first_position", the absolute position of row 0, and, as only the last prompt
/// token may have them, "first_position.logits".
class Recording final : public TapSource {
 public:
  /// Reads a file that write() or tools/dump_hf.py wrote. Throws Error(unusable) naming file and tensor.
  static Recording read(const std::filesystem::path& path);

  /// Appends a tap's rows: those of the chunks of a prefill, then of the steps of a decode, are joined.
  /// Throws Error(failed) naming the tap if they do not follow the rows it has (a session that was rewound,
  /// or another session) or have another shape.
  void append(const Tap& tap);

  /// Writes the file; `metadata` is added to. The bytes depend on the recorded values and `metadata` alone.
  /// Throws Error(failed) if nothing was recorded, if taps end at different positions (a pass that failed
  /// half way), or if the file cannot be written.
  void write(const std::filesystem::path& path, model::Metadata metadata) const;

  /// The rows of `b` as they were recorded; nothing if one of them was not.
  std::optional<Tap> find(const Tap& b) override;
  void release(const Tap&) override {}

  /// Shows every tap to `observer`, in the order of a forward pass.
  void replay(TapObserver& observer);

  /// One more than the highest layer in it.
  std::size_t n_layers() const;

  /// What the file said beside its tensors; empty unless it was read.
  const model::Metadata& metadata() const { return metadata_; }

 private:
  /// Orders taps as one forward pass produces them.
  struct Key {
    TapPoint point;
    std::size_t layer;
    std::strong_ordering operator<=>(const Key& other) const;
  };
  struct Rows {
    std::size_t first_position, rows, heads, width;
    std::vector<float> values;  // [rows, heads, width]
    std::size_t end() const { return first_position + rows; }
  };
  std::map<Key, Rows> taps_;
  model::Metadata metadata_;
};

}  // namespace fs::engine

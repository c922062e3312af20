#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/session.h"
#include "engine/tap.h"

namespace fs::engine {

/// |b − a| ≤ atol + rtol·|a| passes. NaN and infinity on either side never do.
struct Tolerance {
  double atol = 1e-4;
  double rtol = 1e-4;
};

/// One element of a tap on both sides.
struct ElementDiff {
  std::size_t row = 0, head = 0, channel = 0;  ///< row counts from the tap's first position
  float a = 0, b = 0;
  double share =
      0;  ///< |b − a| / (atol + rtol·|a|): 1 is the whole tolerance; infinite where a or b is not finite
};

/// How far a tap of side B is from the same tap of side A.
struct TapDiff {
  TapPoint point = TapPoint::embed;
  std::size_t layer = 0, first_position = 0, rows = 0, heads = 0, width = 0;
  double max_abs = 0;      ///< largest |b − a|
  double relative_l2 = 0;  ///< ‖b − a‖ / ‖a‖
  double cosine = 1;       ///< a·b / (‖a‖·‖b‖)
  std::size_t not_finite_a = 0, not_finite_b = 0;
  std::vector<ElementDiff> worst;  ///< the worst elements, worst first; ties by index. Never empty

  double share() const { return worst.front().share; }
  bool within() const { return share() <= 1; }
};

/// Compares two taps of the same shape. keep ≥ 1: how many worst elements to keep. Throws Error(failed)
/// naming the tap where shapes differ.
TapDiff compare(const Tap& a, const Tap& b, const Tolerance& tolerance, std::size_t keep);

/// Where side A's taps come from: a pass that runs beside B's, or a recording.
class TapSource {
 public:
  virtual ~TapSource() = default;
  /// Side A's values for the rows of `b`, valid until release(); nothing if A has no such tap.
  virtual std::optional<Tap> find(const Tap& b) = 0;
  /// Side B is done with a tap that find() gave it.
  virtual void release(const Tap& a) = 0;
};

/// Watches side B: compares each tap with side A's as it is produced and hands the result on.
class DiffObserver final : public TapObserver {
 public:
  struct Options {
    std::function<bool(TapPoint, std::size_t layer)> wants;  ///< taps to report
    Tolerance tolerance;
    std::size_t keep = 1;
    /// Side B goes on with A's values at every tap, so that each row shows the error that its own operation
    /// adds.
    bool inject = false;
    std::function<void(const TapDiff&)> report;
    TapObserver* record_a = nullptr;  ///< is shown side A's taps too, those that are reported
  };
  DiffObserver(TapSource& a, Options options) : a_(a), options_(std::move(options)) {}

  bool wants(TapPoint point, std::size_t layer) const override {
    return options_.inject || options_.wants(point, layer);
  }
  void observe(const Tap& b) override;
  /// Taps of B that A did not have: they were not compared.
  std::size_t unmatched() const { return unmatched_; }

 private:
  TapSource& a_;
  Options options_;
  std::size_t unmatched_ = 0;
};

/// What both sides think of the next token.
struct DiffLogits {
  std::span<const float> a, b;  ///< [vocab_size]
};

/// Runs `tokens` through both sessions in lock step, A's pass on a thread of its own: a tap of A is held only
/// until B has compared it, so memory is bounded by the largest tap. Both sessions must stand at the same
/// position; both feed chunks of `chunk` tokens. An exception on either side stops both and is rethrown.
/// Returns the logits after the last token, valid until either session's next call.
DiffLogits diff_forward(Session& a, Session& b, std::span<const TokenId> tokens, std::size_t chunk,
                        DiffObserver::Options options, const Progress& progress = {});

}  // namespace fs::engine

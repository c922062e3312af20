#include "engine/diff.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace fs::engine {
namespace {

double share_of_tolerance(float a, float b, const Tolerance& tolerance) {
  if (a == b && std::isfinite(a)) return 0;  // within any tolerance, that of 0 included
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  return std::abs(double{b} - a) / (tolerance.atol + tolerance.rtol * std::abs(double{a}));
}

/// Keeps the `keep` largest shares; the earlier element wins a tie.
void keep_worst(std::vector<ElementDiff>& worst, std::size_t keep, const ElementDiff& element) {
  if (worst.size() == keep && element.share <= worst.back().share) return;
  const auto place = std::upper_bound(worst.begin(), worst.end(), element,
                                      [](const auto& x, const auto& y) { return x.share > y.share; });
  worst.insert(place, element);
  if (worst.size() > keep) worst.pop_back();
}

/// Sorts taps of passes over increasing positions by the time at which they are produced.
std::pair<std::size_t, std::size_t> time_of(const Tap& tap) {
  const auto point = static_cast<std::size_t>(tap.point);
  const std::size_t block =
      !per_layer(tap.point) ? (tap.point == TapPoint::embed ? 0 : SIZE_MAX / 2) : tap.layer + 1;
  return {tap.first_position, block == SIZE_MAX / 2 ? block + point : block * tap_point_count + point};
}

/// Thrown inside a pass whose other side has failed: the other side's reason is the one to report.
struct OtherSideFailed {};

/// Hands taps from A's thread to B's, one at a time: A waits in observe() until B has moved past the tap.
class TapChannel final : public TapObserver, public TapSource {
 public:
  explicit TapChannel(std::function<bool(TapPoint, std::size_t)> wanted) : wanted_(std::move(wanted)) {}

  // Side A
  bool wants(TapPoint point, std::size_t layer) const override { return wanted_(point, layer); }
  void observe(const Tap& tap) override {
    std::unique_lock lock(mutex_);
    offered_ = &tap;
    changed_.notify_all();
    changed_.wait(lock, [&] { return offered_ == nullptr || state_ == State::failed; });
    offered_ = nullptr;
    if (state_ == State::failed) throw OtherSideFailed{};
  }
  void a_finished() { set(State::a_finished); }

  // Side B
  std::optional<Tap> find(const Tap& b) override {
    std::unique_lock lock(mutex_);
    while (next(lock)) {
      if (time_of(*offered_) == time_of(b)) return *offered_;
      if (time_of(*offered_) > time_of(b))
        return std::nullopt;  // A has no such tap; what it offers may match later
      release();
    }
    return std::nullopt;
  }
  void release(const Tap&) override {
    const std::lock_guard lock(mutex_);
    release();
  }
  /// B has passed its last tap: lets A run to its end.
  void drain() {
    std::unique_lock lock(mutex_);
    while (next(lock)) release();
  }

  void failed() { set(State::failed); }

 private:
  enum class State { running, a_finished, failed };

  /// Waits for A to offer a tap; false if no more will come.
  bool next(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return offered_ != nullptr || state_ != State::running; });
    if (state_ == State::failed) throw OtherSideFailed{};
    return offered_ != nullptr;
  }
  void release() {
    offered_ = nullptr;
    changed_.notify_all();
  }
  void set(State state) {
    const std::lock_guard lock(mutex_);
    if (state_ != State::failed) state_ = state;
    changed_.notify_all();
  }

  std::function<bool(TapPoint, std::size_t)> wanted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const Tap* offered_ = nullptr;
  State state_ = State::running;
};

}  // namespace

TapDiff compare(const Tap& a, const Tap& b, const Tolerance& tolerance, std::size_t keep) {
  if (a.rows != b.rows || a.heads != b.heads || a.width != b.width) {
    fail(ExitCode::failed, "{}: side A has shape [{}, {}, {}], side B [{}, {}, {}]",
         tap_key(b.point, b.layer), a.rows, a.heads, a.width, b.rows, b.heads, b.width);
  }
  TapDiff diff;
  diff.point = b.point;
  diff.layer = b.layer;
  diff.first_position = b.first_position;
  diff.rows = b.rows;
  diff.heads = b.heads;
  diff.width = b.width;
  double squares_a = 0, squares_b = 0, squares_error = 0, product = 0;
  for (std::size_t i = 0; i < b.values.size(); ++i) {
    const float x = a.values[i], y = b.values[i];
    diff.not_finite_a += !std::isfinite(x);
    diff.not_finite_b += !std::isfinite(y);
    const double error = double{y} - x;
    diff.max_abs =
        std::max(diff.max_abs, std::isnan(error) ? std::numeric_limits<double>::infinity() : std::abs(error));
    squares_a += double{x} * x;
    squares_b += double{y} * y;
    squares_error += error * error;
    product += double{x} * y;
    keep_worst(diff.worst, keep,
               {i / (b.heads * b.width), i / b.width % b.heads, i % b.width, x, y,
                share_of_tolerance(x, y, tolerance)});
  }
  if (squares_error > 0 || std::isnan(squares_error)) {
    diff.relative_l2 = std::sqrt(squares_error / squares_a);
    diff.cosine = product / std::sqrt(squares_a * squares_b);
  }
  return diff;
}

void DiffObserver::observe(const Tap& b) {
  const std::optional<Tap> a = a_.find(b);
  if (!a) {
    ++unmatched_;
    return;
  }
  const TapDiff diff = compare(*a, b, options_.tolerance, options_.keep);
  const bool wanted = options_.wants(b.point, b.layer);
  if (wanted && options_.record_a != nullptr) options_.record_a->observe(*a);
  if (options_.inject) std::copy(a->values.begin(), a->values.end(), b.values.begin());
  a_.release(*a);
  if (wanted) options_.report(diff);
}

DiffLogits diff_forward(Session& a, Session& b, std::span<const TokenId> tokens, std::size_t chunk,
                        DiffObserver::Options options, const Progress& progress) {
  TapChannel channel(options.inject ? [](TapPoint, std::size_t) { return true; } : options.wants);
  DiffObserver observer(channel, std::move(options));
  DiffLogits logits;
  std::exception_ptr a_failure, b_failure;
  const auto run_a = [&] {
    try {
      ForwardOptions run;
      run.chunk = chunk;
      run.taps = &channel;
      run.require_finite = false;
      logits.a = a.forward(tokens, run);
      channel.a_finished();
    } catch (const OtherSideFailed&) {
    } catch (...) {
      a_failure = std::current_exception();
      channel.failed();
    }
  };
  std::thread a_thread;
  try {
    a_thread = std::thread(run_a);
  } catch (const std::system_error& error) {
    fail(ExitCode::failed, "cannot start a thread for side A: {}", error.what());
  }
  try {
    ForwardOptions run;
    run.chunk = chunk;
    run.taps = &observer;
    run.require_finite = false;
    run.progress = progress;
    logits.b = b.forward(tokens, run);
    channel.drain();
  } catch (const OtherSideFailed&) {
  } catch (...) {
    b_failure = std::current_exception();
    channel.failed();
  }
  a_thread.join();
  if (a_failure) std::rethrow_exception(a_failure);
  if (b_failure) std::rethrow_exception(b_failure);
  return logits;
}

}  // namespace fs::engine

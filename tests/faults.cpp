#include "faults.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace fs::faults {
namespace {

using engine::Tap;
using engine::TapPoint;
using model::Config;
using model::Weights;

void scale(const Tap& tap) {
  for (float& value : tap.values) value *= 1.01F;
}

/// One element of the last row off by a hundredth of the row's largest value.
void one_element(const Tap& tap) {
  const auto row = tap.values.last(tap.heads * tap.width);
  const float peak = std::abs(
      *std::max_element(row.begin(), row.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  row[row.size() / 3] += 0.01F * peak;
}

void swap_heads(const Tap& tap) {
  for (std::size_t row = 0; row < tap.rows; ++row) {
    float* heads = tap.values.data() + row * tap.heads * tap.width;
    std::swap_ranges(heads, heads + tap.width, heads + tap.width);
  }
}

/// [heads, width] written as [width, heads].
void transpose(const Tap& tap) {
  std::vector<float> old(tap.heads * tap.width);
  for (std::size_t row = 0; row < tap.rows; ++row) {
    float* values = tap.values.data() + row * old.size();
    std::copy_n(values, old.size(), old.begin());
    for (std::size_t h = 0; h < tap.heads; ++h) {
      for (std::size_t i = 0; i < tap.width; ++i) values[i * tap.heads + h] = old[h * tap.width + i];
    }
  }
}

/// The last row holds what the row before it held: a cache or scratch row that was not written.
void stale_row(const Tap& tap) {
  const std::size_t size = tap.heads * tap.width;
  if (tap.rows < 2) return;
  std::copy_n(tap.values.end() - static_cast<std::ptrdiff_t>(2 * size), size,
              tap.values.end() - static_cast<std::ptrdiff_t>(size));
}

void last_row_zero(const Tap& tap) {
  const auto row = tap.values.last(tap.heads * tap.width);
  std::fill(row.begin(), row.end(), 0.0F);
}

void shift_by_one(const Tap& tap) {
  std::rotate(tap.values.begin(), tap.values.begin() + 1, tap.values.end());
}

void not_a_number(const Tap& tap) { tap.values.back() = std::numeric_limits<float>::quiet_NaN(); }

void divide(const Tap& tap, const model::Vector& weight) {
  for (std::size_t i = 0; i < tap.values.size(); ++i) tap.values[i] /= weight[i % weight.size()];
}

/// Turns the pairs of every head by turns(row) · theta^(−2i/width): pairs (i, i + width/2), or (2i, 2i + 1)
/// if adjacent.
void rotate(const Tap& tap, double theta, bool adjacent,
            const std::function<double(std::size_t row)>& turns) {
  for (std::size_t row = 0; row < tap.rows; ++row) {
    for (std::size_t h = 0; h < tap.heads; ++h) {
      float* head = tap.values.data() + (row * tap.heads + h) * tap.width;
      for (std::size_t i = 0; i < tap.width / 2; ++i) {
        const double angle =
            turns(row) * std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(tap.width));
        float& a = head[adjacent ? 2 * i : i];
        float& b = head[adjacent ? 2 * i + 1 : i + tap.width / 2];
        const double x = a, y = b;
        a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
        b = static_cast<float>(y * std::cos(angle) + x * std::sin(angle));
      }
    }
  }
}

void off_by_one_position(const Tap& tap, const Config& config) {
  rotate(tap, config.rope_theta, false, [](std::size_t) { return 1.0; });
}

void wrong_pairing(const Tap& tap, const Config& config) {
  const auto position = [&](std::size_t row) { return static_cast<double>(tap.first_position + row); };
  rotate(tap, config.rope_theta, false, [&](std::size_t row) { return -position(row); });
  rotate(tap, config.rope_theta, true, position);
}

void dropped_qk_norm_weight(const Tap& tap, const Config& config, const model::Vector& weight) {
  const auto position = [&](std::size_t row) { return static_cast<double>(tap.first_position + row); };
  rotate(tap, config.rope_theta, false, [&](std::size_t row) { return -position(row); });
  divide(tap, weight);
  rotate(tap, config.rope_theta, false, position);
}

Fault plain(std::string name, TapPoint point, void (*apply)(const Tap&)) {
  return {std::move(name), point,
          [apply](const Tap& tap, const Config&, const Weights&, std::size_t) { apply(tap); }};
}

Fault positional(std::string name, TapPoint point, void (*apply)(const Tap&, const Config&)) {
  return {std::move(name), point,
          [apply](const Tap& tap, const Config& config, const Weights&, std::size_t) { apply(tap, config); }};
}

/// Applies the fault at its tap, then shows the tap to the real observer.
class FaultObserver final : public engine::TapObserver {
 public:
  FaultObserver(engine::TapObserver* next, const Fault& fault, const Config& config, const Weights& weights,
                std::size_t layer)
      : next_(next), fault_(fault), config_(config), weights_(weights), layer_(layer) {}

  bool wants(TapPoint point, std::size_t layer) const override {
    return is_fault(point, layer) || (next_ != nullptr && next_->wants(point, layer));
  }
  void observe(const Tap& tap) override {
    if (is_fault(tap.point, tap.layer)) fault_.apply(tap, config_, weights_, tap.layer);
    if (next_ != nullptr && next_->wants(tap.point, tap.layer)) next_->observe(tap);
  }

 private:
  bool is_fault(TapPoint point, std::size_t layer) const {
    return point == fault_.point && (layer == layer_ || !engine::per_layer(point));
  }
  engine::TapObserver* next_;
  const Fault& fault_;
  const Config& config_;
  const Weights& weights_;
  std::size_t layer_;
};

class FaultyBackend final : public engine::Backend {
 public:
  FaultyBackend(std::unique_ptr<engine::Backend> backend, Weights weights, Fault fault, std::size_t layer)
      : backend_(std::move(backend)), weights_(std::move(weights)), fault_(std::move(fault)), layer_(layer) {}

  std::string_view name() const override { return backend_->name(); }
  const Config& config() const override { return backend_->config(); }
  std::size_t preferred_chunk() const override { return backend_->preferred_chunk(); }
  std::size_t kv_position_bytes() const override { return backend_->kv_position_bytes(); }
  std::unique_ptr<engine::KvCache> make_cache(std::size_t context) const override {
    return backend_->make_cache(context);
  }
  void forward(engine::KvCache& cache, const engine::Pass& pass) const override {
    FaultObserver observer(pass.taps, fault_, config(), weights_, layer_);
    engine::Pass faulty = pass;
    faulty.taps = &observer;
    backend_->forward(cache, faulty);
  }

 private:
  std::unique_ptr<engine::Backend> backend_;
  Weights weights_;
  Fault fault_;
  std::size_t layer_;
};

}  // namespace

const std::vector<Fault>& all() {
  static const std::vector<Fault> every = {
      plain("embed: one element", TapPoint::embed, one_element),
      plain("embed: stale row", TapPoint::embed, stale_row),
      plain("attn_norm: scaled", TapPoint::attn_norm, scale),
      {"attn_norm: dropped weight", TapPoint::attn_norm,
       [](const Tap& tap, const Config&, const Weights& w, std::size_t layer) {
         divide(tap, w.layers[layer].input_norm);
       }},
      plain("q: swapped heads", TapPoint::q, swap_heads),
      plain("q: transposed", TapPoint::q, transpose),
      positional("q: off-by-one position", TapPoint::q, off_by_one_position),
      positional("q: wrong RoPE pairing", TapPoint::q, wrong_pairing),
      {"q: dropped norm weight", TapPoint::q,
       [](const Tap& tap, const Config& c, const Weights& w, std::size_t layer) {
         dropped_qk_norm_weight(tap, c, w.layers[layer].q_norm);
       }},
      plain("k: swapped heads", TapPoint::k, swap_heads),
      plain("k: stale KV row", TapPoint::k, stale_row),
      positional("k: off-by-one position", TapPoint::k, off_by_one_position),
      positional("k: wrong RoPE pairing", TapPoint::k, wrong_pairing),
      {"k: dropped norm weight", TapPoint::k,
       [](const Tap& tap, const Config& c, const Weights& w, std::size_t layer) {
         dropped_qk_norm_weight(tap, c, w.layers[layer].k_norm);
       }},
      plain("v: transposed", TapPoint::v, transpose),
      plain("v: stale KV row", TapPoint::v, stale_row),
      plain("v: one element", TapPoint::v, one_element),
      plain("attn_out: swapped heads", TapPoint::attn_out, swap_heads),
      plain("attn_out: transposed", TapPoint::attn_out, transpose),
      plain("attn_out: last row not written", TapPoint::attn_out, last_row_zero),
      plain("attn_resid: scaled", TapPoint::attn_resid, scale),
      plain("attn_resid: one element", TapPoint::attn_resid, one_element),
      {"mlp_norm: dropped weight", TapPoint::mlp_norm,
       [](const Tap& tap, const Config&, const Weights& w, std::size_t layer) {
         divide(tap, w.layers[layer].post_attention_norm);
       }},
      plain("mlp_act: scaled", TapPoint::mlp_act, scale),
      plain("mlp_act: NaN", TapPoint::mlp_act, not_a_number),
      plain("mlp_act: shifted by one", TapPoint::mlp_act, shift_by_one),
      plain("block_out: one element", TapPoint::block_out, one_element),
      plain("block_out: stale row", TapPoint::block_out, stale_row),
      {"final_norm: dropped weight", TapPoint::final_norm,
       [](const Tap& tap, const Config&, const Weights& w, std::size_t) { divide(tap, w.final_norm); }},
      plain("logits: one element", TapPoint::logits, one_element),
      plain("logits: shifted by one", TapPoint::logits, shift_by_one),
  };
  return every;
}

std::unique_ptr<engine::Backend> with_fault(std::unique_ptr<engine::Backend> backend, model::Weights weights,
                                            const Fault& fault, std::size_t layer) {
  return std::make_unique<FaultyBackend>(std::move(backend), std::move(weights), fault, layer);
}

}  // namespace fs::faults

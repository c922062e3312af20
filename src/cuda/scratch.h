#pragma once
#include <algorithm>
#include <cstddef>

#include "engine/sampler.h"
#include "kernels.h"
#include "model/config.h"
#include "runtime.h"

/// What passes work in besides weights and cache.
namespace fs::cuda::FS_GPU_BUILD {

using gpu::DeviceArray;

/// Intermediate results of a pass of `rows` rows.
struct Scratch {
  Scratch() = default;
  Scratch(const model::Config& c, std::size_t most_rows)
      : rows(most_rows),
        tokens(rows),
        x(rows * c.hidden),
        normed(rows * c.hidden),
        qkv(rows * (c.q_width() + 2 * c.kv_width())),
        mixed(rows * c.q_width()),
        gate(rows * c.intermediate),
        up(rows * c.intermediate),
        split(3 * rows * widest(c)) {}
  static std::size_t bytes(const model::Config& c, std::size_t rows) {
    return rows * (sizeof(int) + 3 * sizeof(gpu::Bf16) * widest(c) +
                   sizeof(float) * (2 * c.hidden + 2 * c.q_width() + 2 * c.kv_width() + 2 * c.intermediate));
  }
  /// Columns of the widest input of a product, in whole steps.
  static std::size_t widest(const model::Config& c) {
    return static_cast<std::size_t>(
        gpu::split_pitch(static_cast<int>(std::max({c.hidden, c.q_width(), c.intermediate}))));
  }
  std::size_t rows = 0;
  DeviceArray<int> tokens;
  DeviceArray<float> x;          // [rows, hidden] the residual stream
  DeviceArray<float> normed;     // [rows, hidden]
  DeviceArray<float> qkv;        // [rows, q_width + 2·kv_width]
  DeviceArray<float> mixed;      // [rows, q_width]
  DeviceArray<float> gate, up;   // [rows, intermediate]
  DeviceArray<gpu::Bf16> split;  // [3, rows, widest] gpu::SplitRows of whichever is multiplied
};

/// Rows whose logits lie on the device at once, where those of all rows are asked for.
inline constexpr std::size_t logit_rows = 64;

/// Decode steps that are queued before the host waits, at most.
inline constexpr std::size_t most_ahead = 16;

/// What decode steps leave for one another, and for the host.
struct DecodeState {
  explicit DecodeState(const model::Config& c)
      : logits(c.vocab_size),
        best_logit(head_blocks(c)),
        best_id(head_blocks(c)),
        head_peak(head_blocks(c)),
        head_mass(head_blocks(c)),
        state(gpu::state_size),
        sampling(1),
        chosen_ids(most_ahead),
        chosen_logs(most_ahead),
        peak(gpu::decode_splits * c.n_q_heads),
        mass(gpu::decode_splits * c.n_q_heads),
        partial(gpu::decode_splits * c.q_width()),
        arrivals(2),
        host_state(gpu::state_size),
        host_sampling(1),
        host_ids(most_ahead),
        host_logs(most_ahead),
        host_logits(c.vocab_size) {}
  /// On the device.
  static std::size_t bytes(const model::Config& c) {
    return sizeof(float) * (c.vocab_size + gpu::decode_splits * (2 * c.n_q_heads + c.q_width())) +
           head_blocks(c) * (2 * sizeof(float) + sizeof(int) + sizeof(double)) +
           gpu::state_size * sizeof(int) + sizeof(gpu::Sampling) + 2 * sizeof(unsigned) +
           most_ahead * (sizeof(int) + sizeof(double));
  }
  static std::size_t head_blocks(const model::Config& c) {
    return static_cast<std::size_t>(gpu::head_blocks(static_cast<int>(c.vocab_size)));
  }
  gpu::HeadBlocks head() const {
    return {best_logit.data(), best_id.data(), head_peak.data(), head_mass.data()};
  }
  gpu::Partials partials() const { return {peak.data(), mass.data(), partial.data()}; }

  DeviceArray<float> logits;      // [vocab_size]
  DeviceArray<float> best_logit;  // HeadBlocks
  DeviceArray<int> best_id;
  DeviceArray<float> head_peak;
  DeviceArray<double> head_mass;
  DeviceArray<int> state;                  // [state_size]
  DeviceArray<gpu::Sampling> sampling;     // [1]
  DeviceArray<int> chosen_ids;             // [most_ahead]
  DeviceArray<double> chosen_logs;         // [most_ahead] log probabilities
  DeviceArray<float> peak, mass, partial;  // Partials
  DeviceArray<unsigned> arrivals;          // [2] of the GridBarrier of decode_layers()
  gpu::PinnedArray<int> host_state;        // [state_size]
  gpu::PinnedArray<gpu::Sampling> host_sampling;
  gpu::PinnedArray<int> host_ids;
  gpu::PinnedArray<double> host_logs;
  gpu::PinnedArray<float> host_logits;  // [vocab_size]
};

}  // namespace fs::cuda::FS_GPU_BUILD

#include "bench/workload.h"

#include <fmt/format.h>

namespace fs::bench {
namespace {

/// Of one kind of matrices: what a pass reads, and what it computes for a token.
struct MatrixCost {
  double bytes = 0, flops = 0;

  void add(const MatrixCost& other) {
    bytes += other.bytes;
    flops += other.flops;
  }
  void add(const model::Matrix& matrix) {
    bytes += static_cast<double>(matrix.rows) * static_cast<double>(matrix.row_bytes());
    flops += 2 * static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
  }
};

/// The products of a layer that give keys and values.
MatrixCost key_value_matrices(const model::LayerWeights& w) {
  MatrixCost sum;
  for (const auto* matrix : {&w.k_proj, &w.v_proj}) sum.add(*matrix);
  return sum;
}

/// And all others.
MatrixCost other_matrices(const model::LayerWeights& w) {
  MatrixCost sum;
  for (const auto* matrix : {&w.q_proj, &w.o_proj, &w.gate_proj, &w.up_proj, &w.down_proj}) sum.add(*matrix);
  return sum;
}

double norm_bytes(const model::Weights& weights) {
  std::size_t floats = weights.final_norm.size();
  for (const model::LayerWeights& w : weights.layers) {
    floats += w.input_norm.size() + w.q_norm.size() + w.k_norm.size() + w.post_attention_norm.size();
  }
  return static_cast<double>(floats * sizeof(float));
}

}  // namespace

std::string Workload::name() const {
  return fmt::format("{}{}{}{}", kind == Kind::prefill ? "pp" : "tg", tokens,
                     sequences == 1 ? "" : fmt::format("x{}", sequences),
                     depth == 0 ? "" : fmt::format("@d{}", depth));
}

std::vector<Workload> workloads(const std::vector<std::size_t>& prompts,
                                const std::vector<std::size_t>& generations,
                                const std::vector<std::size_t>& depths,
                                const std::vector<std::size_t>& sequences) {
  std::vector<Workload> all;
  for (const std::size_t depth : depths) {
    for (const std::size_t tokens : prompts) {
      if (tokens > 0) all.push_back({Workload::Kind::prefill, tokens, depth});
    }
    for (const std::size_t tokens : generations) {
      for (const std::size_t count : sequences) {
        if (tokens > 0) all.push_back({Workload::Kind::decode, tokens, depth, count});
      }
    }
  }
  return all;
}

Cost cost(const Workload& workload, const model::Config& config, const model::Weights& weights,
          std::size_t kv_position_bytes) {
  const bool decode = workload.kind == Workload::Kind::decode;
  const auto tokens = static_cast<double>(workload.tokens), depth = static_cast<double>(workload.depth),
             sequences = static_cast<double>(workload.sequences);
  const double passes = decode ? tokens : 1;
  MatrixCost layers, head;
  for (const model::LayerWeights& layer : weights.layers) {
    layers.add(key_value_matrices(layer));
    layers.add(other_matrices(layer));
  }
  head.add(weights.lm_head);

  // Token i of a sequence sees the positions 0 … depth + i.
  const double seen_by_tokens = tokens * depth + tokens * (tokens + 1) / 2;
  const double seen_by_passes = decode ? seen_by_tokens : depth + tokens;
  const auto attention_width = static_cast<double>(config.n_layers * config.q_width());

  Cost cost;
  cost.bytes = passes * (layers.bytes + head.bytes + norm_bytes(weights)) +
               sequences * (tokens * static_cast<double>(weights.embed_tokens.row_bytes()) +
                            seen_by_passes * static_cast<double>(kv_position_bytes));
  cost.flops =
      sequences * (tokens * layers.flops + passes * head.flops + seen_by_tokens * 4 * attention_width);
  if (!decode) {
    const auto last_width = static_cast<double>(config.q_width());
    cost.flops -= (tokens - 1) * other_matrices(weights.layers.back()).flops +
                  (seen_by_tokens - seen_by_passes) * 4 * last_width;
  }
  return cost;
}

}  // namespace fs::bench

#pragma once
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "model/config.h"
#include "model/weights.h"

/// A second, independent Qwen3 forward pass for the tests: everything in double without rounding, one token
/// at a time, no cache of any kind, attention by full rows of a score matrix. It shares nothing with
/// src/reference but the weights, and is written from the equations, not from that code.
namespace fs::testing::naive {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

inline Row times(const model::Matrix& w, const Row& x) {
  Row y(w.rows);
  std::vector<float> weights(w.cols);
  for (std::size_t o = 0; o < w.rows; ++o) {
    w.row(o, weights);
    for (std::size_t i = w.cols; i-- > 0;) y[o] += static_cast<double>(weights[i]) * x[i];
  }
  return y;
}

/// RMSNorm of x[begin, begin + weight.size()), in place.
inline void normalise(Row& x, std::size_t begin, const model::Vector& weight, double eps) {
  double mean = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    mean += std::pow(x[begin + i], 2) / static_cast<double>(weight.size());
  }
  for (std::size_t i = 0; i < weight.size(); ++i) {
    x[begin + i] = x[begin + i] / std::sqrt(mean + eps) * static_cast<double>(weight[i]);
  }
}

/// Hugging Face's x·cos + rotate_half(x)·sin for the head that starts at `begin`.
inline void rotate(Row& x, std::size_t begin, std::size_t head_dim, std::size_t position, double theta) {
  const Row before(x.begin() + static_cast<std::ptrdiff_t>(begin),
                   x.begin() + static_cast<std::ptrdiff_t>(begin + head_dim));
  for (std::size_t i = 0; i < head_dim; ++i) {
    const std::size_t pair = i % (head_dim / 2);
    const double frequency =
        1 / std::pow(theta, static_cast<double>(2 * pair) / static_cast<double>(head_dim));
    const double angle = static_cast<double>(position) * frequency;
    const double rotated = i < head_dim / 2 ? -before[i + head_dim / 2] : before[i - head_dim / 2];
    x[begin + i] = before[i] * std::cos(angle) + rotated * std::sin(angle);
  }
}

/// Query head h of q [tokens][heads·dim] over keys and values [tokens][kv heads·dim]: head h·n_kv/n_q of
/// them.
inline Rows attend(const Rows& q, const Rows& k, const Rows& v, std::size_t n_q, std::size_t n_kv,
                   std::size_t dim) {
  Rows out(q.size(), Row(n_q * dim));
  for (std::size_t h = 0; h < n_q; ++h) {
    const std::size_t g = h * n_kv / n_q;
    for (std::size_t t = 0; t < q.size(); ++t) {
      Row score(t + 1);
      double total = 0;
      for (std::size_t s = 0; s <= t; ++s) {
        for (std::size_t i = 0; i < dim; ++i) score[s] += q[t][h * dim + i] * k[s][g * dim + i];
        score[s] = std::exp(score[s] / std::sqrt(static_cast<double>(dim)));
        total += score[s];
      }
      for (std::size_t i = 0; i < dim; ++i) {
        for (std::size_t s = 0; s <= t; ++s) out[t][h * dim + i] += score[s] / total * v[s][g * dim + i];
      }
    }
  }
  return out;
}

/// Every tap of the pass over `tokens` from position 0, by tap_key(): [tokens][width].
inline std::map<std::string, Rows> forward(const model::Config& c, const model::Weights& weights,
                                           std::span<const TokenId> tokens) {
  std::map<std::string, Rows> taps;
  const auto each = [](const Rows& rows, auto&& operation) {
    Rows result;
    for (const Row& row : rows) result.push_back(operation(row));
    return result;
  };
  const auto sum = [](const Rows& a, const Rows& b) {
    Rows result = a;
    for (std::size_t t = 0; t < a.size(); ++t) {
      for (std::size_t i = 0; i < a[t].size(); ++i) result[t][i] += b[t][i];
    }
    return result;
  };
  const auto norm = [&](const model::Vector& weight) {
    return [&](Row row) {
      normalise(row, 0, weight, c.rms_norm_eps);
      return row;
    };
  };
  const auto project = [](const model::Matrix& w) { return [&](const Row& row) { return times(w, row); }; };

  Rows hidden;
  for (const TokenId token : tokens) {
    std::vector<float> row(c.hidden);
    weights.embed_tokens.row(token, row);
    hidden.emplace_back(row.begin(), row.end());
  }
  taps["embed"] = hidden;
  for (std::size_t l = 0; l < c.n_layers; ++l) {
    const auto tap = [&](const char* point) -> Rows& {
      return taps["layers." + std::to_string(l) + "." + point];
    };
    const model::LayerWeights& w = weights.layers[l];
    tap("attn_norm") = each(hidden, norm(w.input_norm));
    const auto heads = [&](const model::Matrix& projection, const model::Vector& head_norm) {
      Rows rows = each(tap("attn_norm"), project(projection));
      for (std::size_t t = 0; t < rows.size(); ++t) {
        for (std::size_t begin = 0; begin < rows[t].size(); begin += c.head_dim) {
          normalise(rows[t], begin, head_norm, c.rms_norm_eps);
          rotate(rows[t], begin, c.head_dim, t, c.rope_theta);
        }
      }
      return rows;
    };
    tap("q") = heads(w.q_proj, w.q_norm);
    tap("k") = heads(w.k_proj, w.k_norm);
    tap("v") = each(tap("attn_norm"), project(w.v_proj));
    tap("attn_out") = attend(tap("q"), tap("k"), tap("v"), c.n_q_heads, c.n_kv_heads, c.head_dim);
    tap("attn_resid") = sum(hidden, each(tap("attn_out"), project(w.o_proj)));
    tap("mlp_norm") = each(tap("attn_resid"), norm(w.post_attention_norm));
    tap("mlp_act") = each(tap("mlp_norm"), [&](const Row& x) {
      Row gate = times(w.gate_proj, x);
      const Row up = times(w.up_proj, x);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      return gate;
    });
    hidden = tap("block_out") = sum(tap("attn_resid"), each(tap("mlp_act"), project(w.down_proj)));
  }
  taps["final_norm"] = each(hidden, norm(weights.final_norm));
  taps["logits"] = each(taps["final_norm"], project(weights.lm_head));
  return taps;
}

}  // namespace fs::testing::naive

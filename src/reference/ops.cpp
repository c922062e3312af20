#include "reference/ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace fs::reference {
namespace {

/// Σ a[i]·b[i]. Eight running sums in a fixed order: plain, and the compiler may keep them side by side in
/// registers.
template <class Value>
double dot(const double* a, const Value* b, std::size_t n) {
  constexpr std::size_t lanes = 8;
  std::array<double, lanes> sum{};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) sum[lane] += a[i] * b[i];
  double total = 0;
  for (const double lane : sum) total += lane;
  return total;
}

std::vector<double> widen(std::span<const float> x) { return {x.begin(), x.end()}; }

}  // namespace

void embed(const model::Matrix& table, std::span<const TokenId> tokens, std::span<float> out) {
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    table.row(tokens[t], out.subspan(t * table.cols, table.cols));
  }
}

void rms_norm(std::span<const float> x, const model::Vector& weight, double eps, std::span<float> out) {
  const std::size_t width = weight.size();
  for (std::size_t start = 0; start < x.size(); start += width) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += double{x[start + i]} * x[start + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (std::size_t i = 0; i < width; ++i)
      out[start + i] = static_cast<float>(x[start + i] * scale * weight[i]);
  }
}

void linear(ThreadPool& pool, const model::Matrix& w, std::span<const float> x, std::span<float> out) {
  const std::size_t rows = x.size() / w.cols;
  const std::vector<double> input = widen(x);  // [rows, w.cols], exact
  pool.for_ranges(w.rows, [&](std::size_t begin, std::size_t end) {
    std::vector<float> stored(w.cols);
    std::vector<double> weights(w.cols);
    for (std::size_t o = begin; o < end; ++o) {
      w.row(o, stored);
      std::copy(stored.begin(), stored.end(), weights.begin());
      for (std::size_t t = 0; t < rows; ++t) {
        out[t * w.rows + o] = static_cast<float>(dot(weights.data(), input.data() + t * w.cols, w.cols));
      }
    }
  });
}

void rope(std::span<float> x, std::size_t heads, std::size_t head_dim, std::size_t first_position,
          double theta) {
  const std::size_t rows = x.size() / (heads * head_dim), half = head_dim / 2;
  for (std::size_t t = 0; t < rows; ++t) {
    const auto position = static_cast<double>(first_position + t);
    for (std::size_t i = 0; i < half; ++i) {
      const double exponent = -2 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = position * std::pow(theta, exponent);
      const double cos = std::cos(angle), sin = std::sin(angle);
      for (std::size_t h = 0; h < heads; ++h) {
        float* head = x.data() + (t * heads + h) * head_dim;
        const double a = head[i], b = head[i + half];
        head[i] = static_cast<float>(a * cos - b * sin);
        head[i + half] = static_cast<float>(b * cos + a * sin);
      }
    }
  }
}

void attention(ThreadPool& pool, const model::Config& config, std::span<const float> q,
               std::span<const float> keys, std::span<const float> values, std::size_t first_position,
               std::span<float> out) {
  const std::size_t dim = config.head_dim, rows = q.size() / config.q_width();
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  pool.for_ranges(rows * config.n_q_heads, [&](std::size_t begin, std::size_t end) {
    std::vector<double> probability, sum(dim);
    for (std::size_t unit = begin; unit < end; ++unit) {  // one query head of one row
      const std::size_t visible = first_position + unit / config.n_q_heads + 1;
      const std::size_t kv_head = unit % config.n_q_heads / config.group();
      const auto kv_row = [&](std::span<const float> cache, std::size_t position) {
        return cache.subspan((position * config.n_kv_heads + kv_head) * dim, dim);
      };
      const std::vector<double> query = widen(q.subspan(unit * dim, dim));

      probability.resize(visible);
      for (std::size_t p = 0; p < visible; ++p) {
        probability[p] = scale * dot(query.data(), kv_row(keys, p).data(), dim);
      }
      const double peak = *std::max_element(probability.begin(), probability.end());
      double total = 0;
      for (double& score : probability) total += score = std::exp(score - peak);

      std::fill(sum.begin(), sum.end(), 0.0);
      for (std::size_t p = 0; p < visible; ++p) {
        const auto value = kv_row(values, p);
        for (std::size_t i = 0; i < dim; ++i) sum[i] += probability[p] * value[i];
      }
      for (std::size_t i = 0; i < dim; ++i) out[unit * dim + i] = static_cast<float>(sum[i] / total);
    }
  });
}

void swiglu(std::span<float> gate, std::span<const float> up) {
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    gate[i] = static_cast<float>(x / (1 + std::exp(-x)) * up[i]);
  }
}

void add(std::span<float> x, std::span<const float> delta) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += delta[i];
}

}  // namespace fs::reference

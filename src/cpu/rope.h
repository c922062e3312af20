#pragma once
#include <cmath>
#include <cstddef>
#include <vector>

#include "model/config.h"

namespace fs::cpu {

/// Angles of the rotary embedding: pair i of a head at position p turns by p · theta^(−2i/head_dim). Computed
/// in double, since at p = 40,000 an angle in fp32 would be wrong by 0.004. Source: Su et al. 2021.
class Rope {
 public:
  explicit Rope(const model::Config& config) : frequencies_(config.head_dim / 2) {
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      const double exponent = -2 * static_cast<double>(i) / static_cast<double>(config.head_dim);
      frequencies_[i] = std::pow(config.rope_theta, exponent);
    }
  }

  std::size_t half() const { return frequencies_.size(); }

  /// Cosines and sines of the positions of some rows: [rows, head_dim / 2] each.
  struct Table {
    std::vector<float> cosines, sines;
  };
  /// Appends `count` consecutive positions.
  void append(Table& table, std::size_t first_position, std::size_t count) const {
    for (std::size_t p = first_position; p < first_position + count; ++p) {
      for (const double frequency : frequencies_) {
        const double angle = static_cast<double>(p) * frequency;
        table.cosines.push_back(static_cast<float>(std::cos(angle)));
        table.sines.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }

 private:
  std::vector<double> frequencies_;  // [head_dim / 2]
};

}  // namespace fs::cpu

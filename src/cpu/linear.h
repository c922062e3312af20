#pragma once
#include <initializer_list>
#include <span>

#include "cpu/team.h"
#include "model/weights.h"

/// Products with weight matrices. A few tokens at once are dot products straight from the stored weights,
/// which are read once, in order (memory bounds them); from `few_tokens` on, panels of weights are decoded to
/// fp32 and multiplied with all tokens (arithmetic bounds them). Weights that were arranged in panels
/// (cpu/panels.h) are read as they lie, those of integers in the same way whatever the number of tokens.
/// Every output is summed in an order that depends on the shapes alone: results do not depend on the number
/// of threads, nor, of a few tokens and of decode steps (Team::steps), on how many there are.
namespace fs::cpu {

/// A matrix and where its products go. out: [tokens, w.rows]
struct Projection {
  const model::Matrix& w;
  std::span<float> out;
};

/// out = x · Wᵀ for several matrices of the same input.  x: [tokens, cols]
void linear(Team& team, std::initializer_list<Projection> projections, std::span<const float> x);

/// out += x · Wᵀ.  x: [tokens, w.cols], out: [tokens, w.rows]
void linear_add(Team& team, const model::Matrix& w, std::span<const float> x, std::span<float> out);

/// out = silu(x · gateᵀ) · (x · upᵀ).  x: [tokens, gate.cols], out: [tokens, gate.rows]
void linear_swiglu(Team& team, const model::Matrix& gate, const model::Matrix& up, std::span<const float> x,
                   std::span<float> out);

}  // namespace fs::cpu

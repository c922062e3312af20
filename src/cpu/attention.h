#pragma once
#include <cstddef>
#include <span>

#include "cpu/kv_cache.h"
#include "cpu/team.h"
#include "model/config.h"

namespace fs::cpu {

/// Causal grouped-query attention: row t of a segment, at position p = first_position + t, attends to
/// positions 0..p of its cache.
///   out = softmax(q · kᵀ / sqrt(head_dim)) · v, query head h with key/value head h / group
/// Block by block with an online softmax (FlashAttention, Dao et al. 2022): the query heads of a group read
/// keys and values once. A few rows split the positions among threads and merge at the end (flash decoding);
/// each gives what it gives alone, to the bit.
/// q, out: [rows of all segments, n_q_heads, head_dim]
void attention(Team& team, const model::Config& config, std::span<const float> q,
               std::span<const Segment> segments, std::size_t layer, std::span<float> out);

}  // namespace fs::cpu

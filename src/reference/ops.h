#pragma once
#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "base/types.h"
#include "model/weights.h"

/// The operations of a dense Qwen3 layer as the paper writes them. Values are fp32, every sum runs in double
/// and is rounded once; the order of a sum depends on nothing but its length, so results are bit-identical
/// for any number of threads and any chunking of the rows.
namespace fs::reference {

/// out[t] = table[tokens[t]].  out: [rows, hidden]
void embed(const model::Matrix& table, std::span<const TokenId> tokens, std::span<float> out);

/// out = x / sqrt(mean(x²) + eps) · weight over each run of weight.size() values. x, out: [n, width], may be
/// the same. Source: Qwen3RMSNorm; Zhang & Sennrich 2019.
void rms_norm(std::span<const float> x, const model::Vector& weight, double eps, std::span<float> out);

/// out = x · Wᵀ.  x: [rows, w.cols], out: [rows, w.rows]
void linear(ThreadPool& pool, const model::Matrix& w, std::span<const float> x, std::span<float> out);

/// Rotates each head of x [rows, heads, head_dim] by its position first_position + row: the pair (i, i +
/// head_dim/2) turns by position · theta^(−2i/head_dim). Source: apply_rotary_pos_emb (rotate_half); Su et
/// al. 2021.
void rope(std::span<float> x, std::size_t heads, std::size_t head_dim, std::size_t first_position,
          double theta);

/// Causal grouped-query attention: row t at position p = first_position + t attends to positions 0..p.
///   out = softmax(q · kᵀ / sqrt(head_dim)) · v, query head h with key/value head h / (n_q_heads /
///   n_kv_heads)
/// q, out: [rows, n_q_heads, head_dim]; keys, values: [≥ first_position + rows, n_kv_heads, head_dim]
void attention(ThreadPool& pool, const model::Config& config, std::span<const float> q,
               std::span<const float> keys, std::span<const float> values, std::size_t first_position,
               std::span<float> out);

/// gate = silu(gate) · up, silu(x) = x / (1 + exp(−x)).  Both [rows, intermediate]. Source: Qwen3MLP.
void swiglu(std::span<float> gate, std::span<const float> up);

/// x += delta
void add(std::span<float> x, std::span<const float> delta);

}  // namespace fs::reference

#pragma once
#include "gpu.h"
#include "kernels.h"

/// What the attention kernels share.
namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// `value` as the format holds it.
template <class Element>
FS_DEVICE float rounded(float value) {
  Element held;
  store_as(&held, value);
  return to_float(held);
}

/// 16 bytes of a cached head as fp32.
template <class Element>
FS_DEVICE void decode_cached(const U32x4& held, float (&to)[16 / sizeof(Element)]) {
  const std::uint32_t words[4] = {held.x, held.y, held.z, held.w};
  FS_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(Element) == 4) {
      to[i] = as_float(words[i]);
    } else {
      to[2 * i] = to_float(Element{static_cast<std::uint16_t>(words[i] & 0xFFFFU)});
      to[2 * i + 1] = to_float(Element{static_cast<std::uint16_t>(words[i] >> 16U)});
    }
  }
}

/// Calls `use` with a null pointer to the type of a format's elements.
template <class Use>
void with_kv_format(KvFormat format, Use use) {
  switch (format) {
    case KvFormat::f32:
      return use(static_cast<float*>(nullptr));
    case KvFormat::f16:
      return use(static_cast<F16*>(nullptr));
    case KvFormat::bf16:
      return use(static_cast<Bf16*>(nullptr));
  }
}

/// Positions in one chunk when `positions` of them are split: both attention_decode and the merge ask.
FS_DEVICE int chunk_length(int positions) {
  const int even = (positions + decode_splits - 1) / decode_splits;
  return max(least_chunk, (even + 15) / 16 * 16);
}
FS_DEVICE int chunk_count(int positions) {
  const int length = chunk_length(positions);
  return (positions + length - 1) / length;
}

/// RMSNorm of one head, then RoPE: the pair (i, i + head_dim/2) turns by the position's angle. By one warp.
/// from: [head_dim]; to: [head_dim], not overlapping `from` unless equal to it.
FS_DEVICE void rotate_head(const float* from, const float* norm, const float* angles, float eps, int head_dim,
                           float* to) {
  float squares = 0;
  for (int i = lane_index(); i < head_dim; i += 32) squares = fma(from[i], from[i], squares);
  const float scale = inverse_sqrt(lanes_sum(squares) / static_cast<float>(head_dim) + eps);
  sync_warp();  // in place: all lanes have read before one writes
  const int half = head_dim / 2;
  for (int i = lane_index(); i < half; i += 32) {
    const float a = from[i] * scale * norm[i], b = from[i + half] * scale * norm[i + half];
    const float cosine = angles[2 * i], sine = angles[2 * i + 1];
    to[i] = a * cosine - b * sine;
    to[i + half] = b * cosine + a * sine;
  }
}

/// Component i of the merged attention of query head `head`.
FS_DEVICE float merged(const Partials& partials, int chunks, int n_q_heads, int head_dim, int head, int i) {
  float top = -infinity();
  for (int c = 0; c < chunks; ++c) top = max(top, partials.peak[c * n_q_heads + head]);
  float total = 0, sum = 0;
  for (int c = 0; c < chunks; ++c) {
    const int at = c * n_q_heads + head;
    const float share = exp(partials.peak[at] - top);
    total = fma(partials.mass[at], share, total);
    sum = fma(partials.mixed[at * head_dim + i], share, sum);
  }
  return sum / total;
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

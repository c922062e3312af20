#include "attention.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int flash_threads = 128, flash_queries = 64, flash_keys = 64;

/// 16-byte vectors of a row of a tile in shared memory: eight bf16 each, and one more so that ldmatrix has no
/// bank conflicts.
template <int dim>
inline constexpr int row_vectors = dim / 8 + 1;
template <int dim>
inline constexpr std::size_t flash_bytes = std::size_t{2 * flash_keys * row_vectors<dim>} * sizeof(U32x4);

/// Two values, each to the nearest bf16.
FS_DEVICE std::uint32_t bf16_pair(float first, float second) {
  Bf16 a, b;
  store_as(&a, first);
  store_as(&b, second);
  return static_cast<std::uint32_t>(a.bits) | static_cast<std::uint32_t>(b.bits) << 16U;
}
FS_DEVICE U32x4 bf16_vector(const float (&x)[8]) {
  return {bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7])};
}

/// Eight cached values from `at`, a multiple of eight, as bf16.
FS_DEVICE U32x4 cached_vector(KvFormat format, const void* values, std::size_t at) {
  float x[8];
  if (format == KvFormat::f32) {
    const F32x4 a = load4(static_cast<const float*>(values) + at),
                b = load4(static_cast<const float*>(values) + at + 4);
    x[0] = a.x;
    x[1] = a.y;
    x[2] = a.z;
    x[3] = a.w;
    x[4] = b.x;
    x[5] = b.y;
    x[6] = b.z;
    x[7] = b.w;
  } else if (format == KvFormat::bf16) {
    return load_streaming(static_cast<const Bf16*>(values) + at);
  } else {
    decode_cached<F16>(load_streaming(static_cast<const void*>(static_cast<const F16*>(values) + at)), x);
  }
  return bf16_vector(x);
}

/// Flash attention (Dao et al. 2022) on tensor cores: a warp holds 16 query rows of one head, their softmax
/// and their sums in registers, and goes over tiles of 64 keys. Queries, keys, values and the softmax's
/// shares are rounded to bf16; scores and sums are fp32. Grid: [query tiles, n_q_heads]. dim: head_dim,
/// rounded up.
template <int dim>
FS_KERNEL(flash_threads)
attention_prefill_tensor_kernel(int n_q_heads, int n_kv_heads, int head_dim, int pitch, const float* qkv,
                                KvFormat format, const void* keys, const void* values, int rows,
                                int first_position, float* mixed) {
  FS_DYNAMIC_SHARED(U32x4, shared);
  wait_for_previous_kernel();
  constexpr int width = row_vectors<dim>;
  U32x4* const k = shared;                  // [flash_keys, width]; the queries, at first
  U32x4* const v = k + flash_keys * width;  // [flash_keys, width]
  const int head = block_y(), kv_head = head / (n_q_heads / n_kv_heads);
  const int first_row = block_x() * flash_queries, lane = lane_index();
  const auto row_width = static_cast<std::size_t>((n_q_heads + 2 * n_kv_heads) * head_dim);
  const auto cache_row = static_cast<std::size_t>(n_kv_heads * pitch);
  const float scale = inverse_sqrt(static_cast<float>(head_dim));

  for (int i = thread_index(); i < flash_queries * (dim / 8); i += flash_threads) {
    const int row = first_row + i / (dim / 8), d = i % (dim / 8) * 8;
    float x[8];
    FS_UNROLL
    for (int j = 0; j < 8; ++j) {
      x[j] = row < rows && d + j < head_dim ? qkv[static_cast<std::size_t>(row) * row_width +
                                                  static_cast<std::size_t>(head * head_dim + d + j)]
                                            : 0.0F;
    }
    k[i / (dim / 8) * width + i % (dim / 8)] = bf16_vector(x);
  }
  sync_threads();
  std::uint32_t q[dim / 16][4];
  FS_UNROLL
  for (int s = 0; s < dim / 16; ++s) {
    load_matrices(q[s], &k[(warp_index() * 16 + lane % 16) * width + 2 * s + lane / 16]);
  }

  // Of a lane: rows lane / 4 and lane / 4 + 8 of the warp's 16, as mma leaves them.
  float top[2] = {-infinity(), -infinity()}, total[2] = {0, 0}, sum[dim / 8][4] = {};
  const int visible = first_position + min(rows, first_row + flash_queries);  // to the block's last row
  for (int first_key = 0; first_key < visible; first_key += flash_keys) {
    sync_threads();
    for (int i = thread_index(); i < flash_keys * (dim / 8); i += flash_threads) {
      const int key = first_key + i / (dim / 8), d = i % (dim / 8) * 8,
                to = i / (dim / 8) * width + i % (dim / 8);
      const std::size_t at =
          static_cast<std::size_t>(key) * cache_row + static_cast<std::size_t>(kv_head * pitch + d);
      const bool inside = key < visible && d < pitch;
      k[to] = inside ? cached_vector(format, keys, at) : U32x4{0, 0, 0, 0};
      v[to] = inside ? cached_vector(format, values, at) : U32x4{0, 0, 0, 0};
    }
    sync_threads();

    float score[flash_keys / 8][4] = {};
    FS_UNROLL
    for (int s = 0; s < dim / 16; ++s) {
      FS_UNROLL
      for (int pair = 0; pair < flash_keys / 16; ++pair) {
        std::uint32_t b[4];
        load_matrices(b, &k[(16 * pair + lane % 8 + lane / 16 * 8) * width + 2 * s + lane / 8 % 2]);
        multiply_bf16(score[2 * pair], q[s], b[0], b[1]);
        multiply_bf16(score[2 * pair + 1], q[s], b[2], b[3]);
      }
    }
    FS_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int last =
          first_position + first_row + warp_index() * 16 + lane / 4 + 8 * r;  // key that the row sees
      float peak = top[r];
      FS_UNROLL
      for (int j = 0; j < flash_keys / 8; ++j) {
        FS_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int key = first_key + 8 * j + lane % 4 * 2 + c;
          float& own = score[j][2 * r + c];
          own = key <= last && key < visible ? own * scale : -infinity();
          peak = max(peak, own);
        }
      }
      peak = lanes_max<4>(peak);
      const bool any = peak > -infinity();  // rows beyond the last see nothing in late tiles
      const float keep = any ? exp(top[r] - peak) : 1.0F;
      top[r] = peak;
      total[r] *= keep;
      FS_UNROLL
      for (int j = 0; j < flash_keys / 8; ++j) {
        FS_UNROLL
        for (int c = 0; c < 2; ++c) {
          float& own = score[j][2 * r + c];
          own = any ? exp(own - peak) : 0.0F;
          total[r] += own;
        }
      }
      FS_UNROLL
      for (int j = 0; j < dim / 8; ++j) {
        sum[j][2 * r] *= keep;
        sum[j][2 * r + 1] *= keep;
      }
    }
    FS_UNROLL
    for (int s = 0; s < flash_keys / 16; ++s) {
      const std::uint32_t shares[4] = {bf16_pair(score[2 * s][0], score[2 * s][1]),
                                       bf16_pair(score[2 * s][2], score[2 * s][3]),
                                       bf16_pair(score[2 * s + 1][0], score[2 * s + 1][1]),
                                       bf16_pair(score[2 * s + 1][2], score[2 * s + 1][3])};
      FS_UNROLL
      for (int pair = 0; pair < dim / 16; ++pair) {
        std::uint32_t b[4];
        load_matrices_transposed(b,
                                 &v[(16 * s + lane % 8 + lane / 8 % 2 * 8) * width + 2 * pair + lane / 16]);
        multiply_bf16(sum[2 * pair], shares, b[0], b[1]);
        multiply_bf16(sum[2 * pair + 1], shares, b[2], b[3]);
      }
    }
  }

  FS_UNROLL
  for (int r = 0; r < 2; ++r) {
    const float all = lanes_sum<4>(total[r]);
    const int row = first_row + warp_index() * 16 + lane / 4 + 8 * r;
    FS_UNROLL
    for (int j = 0; j < dim / 8; ++j) {
      FS_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int d = 8 * j + lane % 4 * 2 + c;
        if (row >= rows || d >= head_dim) continue;
        mixed[(static_cast<std::size_t>(row) * static_cast<std::size_t>(n_q_heads) +
               static_cast<std::size_t>(head)) *
                  static_cast<std::size_t>(head_dim) +
              static_cast<std::size_t>(d)] = sum[j][2 * r + c] / all;
      }
    }
  }
}

}  // namespace

void attention_prefill_tensor(Stream& stream, const AttentionShape& shape, const float* qkv,
                              const LayerCache& cache, int rows, int first_position, float* mixed) {
  const auto run = [&](auto kernel, std::size_t shared_bytes) {
    launch(stream,
           {"attention_prefill_tensor", static_cast<unsigned>((rows + flash_queries - 1) / flash_queries),
            static_cast<unsigned>(shape.n_q_heads), flash_threads, shared_bytes},
           kernel, shape.n_q_heads, shape.n_kv_heads, shape.head_dim, shape.pitch(), qkv, cache.format,
           static_cast<const void*>(cache.keys), static_cast<const void*>(cache.values), rows, first_position,
           mixed);
  };
  if (shape.head_dim <= 32) {
    run(attention_prefill_tensor_kernel<32>, flash_bytes<32>);
  } else if (shape.head_dim <= 64) {
    run(attention_prefill_tensor_kernel<64>, flash_bytes<64>);
  } else {
    run(attention_prefill_tensor_kernel<128>, flash_bytes<128>);
  }
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

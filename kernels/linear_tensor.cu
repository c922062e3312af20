#include <type_traits>

#include "gpu.h"
#include "weight_formats.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int tile = 64, depth = split_depth, tensor_threads = 128;
constexpr int row_vectors =
    depth / 8 + 1;  // a row of a tile, and 16 bytes so that ldmatrix has no bank conflicts
constexpr int vectors_per_thread = tile * (depth / 8) / tensor_threads;

/// A pair of bf16 from fp32 values that bf16 holds exactly.
FS_DEVICE std::uint32_t pair_of(float first, float second) {
  return as_bits(first) >> 16U | (as_bits(second) & 0xFFFF0000U);
}

/// What a thread brings of a tile of quantised weights, which become bf16 on their way to shared memory: the
/// digits, small integers, exactly. Their factor is applied to the sum over the tile.
template <class Weights>
struct QuantizedTile {
  static constexpr int row_chunks = depth / Weights::per_chunk, chunks_of_tile = tile * row_chunks;

  FS_DEVICE void fetch(const unsigned char* w, const F16* scales, int first_row, int w_rows, int k,
                       int chunks) {
    const int i = thread_index(), row = first_row + i / row_chunks,
              chunk = k / Weights::per_chunk + i % row_chunks;
    inside = i < chunks_of_tile && row < w_rows && chunk < chunks;
    if (inside) {
      held = load_streaming(w + (static_cast<std::size_t>(row) * static_cast<std::size_t>(chunks) +
                                 static_cast<std::size_t>(chunk)) *
                                    16);
    }
    const int scaled = first_row + i, first_chunk = k / Weights::per_chunk;
    factor = i < tile && scaled < w_rows && first_chunk < chunks
                 ? scale_at<Weights>(scales, scaled, first_chunk, chunks)
                 : 0.0F;
  }

  /// rows: [tile, row_vectors], factors: [tile]
  FS_DEVICE void store(U32x4* rows, float* factors) const {
    const int i = thread_index();
    if (i < tile) factors[i] = factor;
    if (i >= chunks_of_tile) return;
    U32x4* const to = rows + i / row_chunks * row_vectors + i % row_chunks * (Weights::per_chunk / 8);
    FS_UNROLL
    for (int v = 0; v < Weights::per_chunk / 8; ++v) {
      float a[4] = {}, b[4] = {};
      if (inside) {
        Weights::decode(held, 2 * v, a);
        Weights::decode(held, 2 * v + 1, b);
      }
      to[v] = {pair_of(a[0], a[1]), pair_of(a[2], a[3]), pair_of(b[0], b[1]), pair_of(b[2], b[3])};
    }
  }

  U32x4 held = {0, 0, 0, 0};
  float factor = 0;
  bool inside = false;
};

/// bf16 weights are copied as they are.
struct NothingToBring {};

/// A block makes 64 rows of x times 64 rows of W on the tensor cores, a warp 32 × 32 of them, with the next
/// 32 columns of both on their way. Products of bf16 are exact in fp32, so the rounding of sums is all that
/// is lost of what the parts of x hold; and as tensor cores cut sums off, always towards zero, a step's is
/// added to the whole by an ordinary addition, so that nothing drifts.
template <class Weights, int parts>
FS_KERNEL(tensor_threads)
linear_tensor_kernel(const unsigned char* w, const F16* scales, int w_rows, int chunks, const Bf16* x,
                     int pitch, int rows, bool add, float* out) {
  constexpr bool quantized = Weights::chunks_per_scale > 0, apart = quantized || parts > 1;
  FS_SHARED(U32x4, tiles, [2][1 + parts][tile * row_vectors]);  // W, then x
  FS_SHARED(float, factors, [2][tile]);
  wait_for_previous_kernel();
  const int first_w = block_x() * tile, first_x = block_y() * tile;
  const int lane = lane_index(), down = warp_index() % 2 * 32, across = warp_index() / 2 * 32;

  const auto load = [&](int k, int stage) {
    FS_UNROLL
    for (int v = 0; v < vectors_per_thread; ++v) {
      const int i = thread_index() + v * tensor_threads, r = i / (depth / 8), c = i % (depth / 8);
      const int to = r * row_vectors + c;
      const bool x_inside = first_x + r < rows;
      FS_UNROLL
      for (int part = 0; part < parts; ++part) {
        const std::size_t row = static_cast<std::size_t>(part * rows + (x_inside ? first_x + r : 0));
        copy_async16(&tiles[stage][1 + part][to],
                     x + row * static_cast<std::size_t>(pitch) + static_cast<std::size_t>(k + 8 * c),
                     x_inside);
      }
      if constexpr (!quantized) {
        const int chunk = k / 8 + c;
        const bool inside = first_w + r < w_rows && chunk < chunks;
        const std::size_t at =
            inside ? static_cast<std::size_t>(first_w + r) * static_cast<std::size_t>(chunks) +
                         static_cast<std::size_t>(chunk)
                   : 0;
        copy_async16(&tiles[stage][0][to], w + at * 16, inside);
      }
    }
    commit_copies();
  };

  float sum[2][4][4] = {};  // [rows by 16][columns by 8]: a fragment of mma each
  [[maybe_unused]] std::conditional_t<quantized, QuantizedTile<Weights>, NothingToBring> next;
  load(0, 0);
  if constexpr (quantized) {
    next.fetch(w, scales, first_w, w_rows, 0, chunks);
    next.store(tiles[0][0], factors[0]);
  }
  const bool idle = first_x + down >= rows;
  for (int k = 0, stage = 0; k < pitch; k += depth, stage ^= 1) {
    wait_copies<0>();
    sync_threads();  // this stage is there, and nobody reads the other one any more
    const bool more = k + depth < pitch;
    if (more) {
      load(k + depth, stage ^ 1);
      if constexpr (quantized) next.fetch(w, scales, first_w, w_rows, k + depth, chunks);
    }
    if (!idle) {
      float products[2][4][4] = {};
      auto& into = apart ? products : sum;
      FS_UNROLL
      for (int step = 0; step < depth / 16; ++step) {
        std::uint32_t b[2][4];
        FS_UNROLL
        for (int pair = 0; pair < 2; ++pair) {
          const int row = across + 16 * pair + lane % 8 + lane / 16 * 8;
          load_matrices(b[pair], &tiles[stage][0][row * row_vectors + 2 * step + lane / 8 % 2]);
        }
        FS_UNROLL
        for (int part = 0; part < parts; ++part) {
          FS_UNROLL
          for (int i = 0; i < 2; ++i) {
            std::uint32_t a[4];
            const int row = down + 16 * i + lane % 16;
            load_matrices(a, &tiles[stage][1 + part][row * row_vectors + 2 * step + lane / 16]);
            FS_UNROLL
            for (int j = 0; j < 4; ++j) {
              multiply_bf16(into[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
          }
        }
      }
      if constexpr (apart) {
        FS_UNROLL
        for (int j = 0; j < 4; ++j) {
          FS_UNROLL
          for (int c = 0; c < 4; ++c) {
            const float factor = quantized ? factors[stage][across + 8 * j + lane % 4 * 2 + c % 2] : 1.0F;
            FS_UNROLL
            for (int i = 0; i < 2; ++i) sum[i][j][c] = fma(factor, products[i][j][c], sum[i][j][c]);
          }
        }
      }
    }
    if constexpr (quantized) {
      if (more) next.store(tiles[stage ^ 1][0], factors[stage ^ 1]);
    }
  }

  FS_UNROLL
  for (int i = 0; i < 2; ++i) {
    FS_UNROLL
    for (int j = 0; j < 4; ++j) {
      FS_UNROLL
      for (int c = 0; c < 4; ++c) {
        const int row = first_x + down + 16 * i + lane / 4 + c / 2 * 8,
                  col = first_w + across + 8 * j + lane % 4 * 2 + c % 2;
        if (row >= rows || col >= w_rows) continue;
        float* const to = out + static_cast<std::size_t>(row) * static_cast<std::size_t>(w_rows) + col;
        *to = add ? *to + sum[i][j][c] : sum[i][j][c];
      }
    }
  }
}

}  // namespace

void linear_tensor(Stream& stream, const DeviceMatrix& w, const SplitRows& x, int rows, bool add,
                   float* out) {
  const auto run = [&](auto kernel) {
    launch(stream,
           {"linear_tensor", static_cast<unsigned>((w.rows + tile - 1) / tile),
            static_cast<unsigned>((rows + tile - 1) / tile), tensor_threads},
           kernel, w.data, w.scales, w.rows, w.chunks, static_cast<const Bf16*>(x.data), x.pitch, rows, add,
           out);
  };
  with_format(w.format, [&](auto weights) {
    using Weights = decltype(weights);
    if constexpr (linear_tensor_takes(Weights::format)) {
      x.parts == 3 ? run(linear_tensor_kernel<Weights, 3>) : run(linear_tensor_kernel<Weights, 1>);
    }
  });
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

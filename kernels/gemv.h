#pragma once
#include "gpu.h"
#include "weight_formats.h"

/// The core of every matrix · vector product: a warp takes a few rows, the activations are staged in shared
/// memory, and the rows' first chunks are on their way before the activations are there. Weights become fp32
/// in registers, exactly, and every product is fp32: at batch 1 the memory bus is the limit, not the
/// arithmetic.
namespace fs::gpu {
inline namespace FS_GPU_BUILD {

inline constexpr int gemv_threads = 256;
inline constexpr int gemv_warps = gemv_threads / 32;
/// Blocks whose warps take `at_once` rows each.
inline constexpr unsigned gemv_blocks(int rows, int at_once = 1) {
  return static_cast<unsigned>((rows + gemv_warps * at_once - 1) / (gemv_warps * at_once));
}
/// Shared memory for the staged activations of a row of `chunks`.
template <class Weights>
constexpr std::size_t staged_bytes(int chunks) {
  return static_cast<std::size_t>(chunks * Weights::per_chunk) * sizeof(float);
}

/// Where value i of the activations lies in shared memory. The four-value parts of a chunk lie in planes of
/// their own, so that the 32 lanes read 32 consecutive vectors: no bank conflicts.
template <class Weights>
FS_DEVICE int staged_at(int i, int chunks) {
  const int chunk = i / Weights::per_chunk, part = i % Weights::per_chunk / 4;
  return (part * chunks + chunk) * 4 + i % 4;
}

/// Sum over the block, the same in every thread. `parts`: [warps] in shared memory, not in use.
FS_DEVICE float block_sum(float value, float* parts) {
  value = lanes_sum(value);
  if (lane_index() == 0) parts[warp_index()] = value;
  sync_threads();
  float sum = 0;
  for (int w = 0; w < block_threads() / 32; ++w) sum += parts[w];
  return sum;
}

/// 1 / sqrt(mean(x²) + eps), by the whole block.  x: [width]
FS_DEVICE float rms_scale(const float* x, int width, float eps, float* parts) {
  float squares = 0;
  for (int i = thread_index(); i < width; i += block_threads()) squares = fma(x[i], x[i], squares);
  return inverse_sqrt(block_sum(squares, parts) / static_cast<float>(width) + eps);
}

/// Stages rms_norm(x), or x where norm is null, for rows of `chunks`. The caller synchronises.  x: [cols]
template <class Weights>
FS_DEVICE void stage(const float* x, const float* norm, float eps, int cols, int chunks, float* staged) {
  FS_SHARED(float, parts, [gemv_warps]);
  const float scale = norm == nullptr ? 1.0F : rms_scale(x, cols, eps, parts);
  for (int i = thread_index(); i < chunks * Weights::per_chunk; i += block_threads()) {
    float value = 0;
    if (i < cols) value = norm == nullptr ? x[i] : x[i] * scale * norm[i];
    staged[staged_at<Weights>(i, chunks)] = value;
  }
}

/// A matrix as a kernel was given it.
struct MatrixPlanes {
  const unsigned char* data;  // [rows, chunks, 16]
  const F16* scales;          // [rows, scales_of_row]
  int rows, chunks;
};

/// Rows that a warp takes at once, and chunks of each that a lane holds, for rows of about `cols`: all of a
/// row is on its way, and a lane waits for as many bytes whatever the format.
template <class Weights>
inline constexpr int rows_at_once = Weights::per_chunk > 8 ? Weights::per_chunk / 8 : 1;
template <class Weights, int cols>
inline constexpr int chunks_ahead = cols / 32 / (Weights::per_chunk > 8 ? Weights::per_chunk : 8);

/// Rows on their way through a warp, which reads the activations once for all of them: the same `rows_each`
/// of each of `matrices`, which have one shape. `ahead`: chunks of each row that a lane holds in registers.
template <class Weights, int matrices, int rows_each, int ahead>
class Rows {
 public:
  static constexpr int count = matrices * rows_each;

  Rows() = default;
  FS_DEVICE Rows(const MatrixPlanes (&of)[matrices], int first) { start(of, first); }

  /// Ends what the registers held before: lanes beyond the end of a row load nothing into theirs.
  FS_DEVICE void clear() {
    FS_UNROLL
    for (int i = 0; i < count; ++i) {
      FS_UNROLL
      for (int a = 0; a < ahead; ++a) held_[i][a] = {};
    }
  }
  /// Starts loading; row i is row first + i / matrices of matrix i % matrices. Beyond the last row the last
  /// one stands in; where none is there nothing is loaded.
  FS_DEVICE void start(const MatrixPlanes (&of)[matrices], int first) {
    chunks_ = first < of[0].rows ? of[0].chunks : 0;
    FS_UNROLL
    for (int i = 0; i < count; ++i) {
      const MatrixPlanes& matrix = of[i % matrices];
      const auto row = static_cast<std::size_t>(min(first + i / matrices, matrix.rows - 1));
      data_[i] = matrix.data + row * static_cast<std::size_t>(matrix.chunks) * 16;
      if constexpr (scaled)
        scales_[i] = matrix.scales + row * static_cast<std::size_t>(scales_of_row<Weights>(matrix.chunks));
    }
    fetch(0);
  }

  /// sums[i] = row i · activations, the same in every lane.
  FS_DEVICE void dot(const float* staged, float (&sums)[count]) {
    FS_UNROLL
    for (int i = 0; i < count; ++i) sums[i] = 0;
    for (int first = 0; first < chunks_; first += 32 * ahead) {
      FS_UNROLL
      for (int a = 0; a < ahead; ++a) {
        float products[count], scales[count];
        FS_UNROLL
        for (int i = 0; i < count; ++i) {
          products[i] = 0;
          scales[i] = scale(i, a);
        }
        const int chunk = first + 32 * a + lane_index();
        if (chunk >= chunks_) continue;
        FS_UNROLL
        for (int part = 0; part < Weights::per_chunk / 4; ++part) {
          const F32x4 x = load4(staged + (part * chunks_ + chunk) * 4);
          FS_UNROLL
          for (int i = 0; i < count; ++i) {
            float w[4];
            Weights::decode(held_[i][a], part, w);
            products[i] = fma(w[0], x.x, products[i]);
            products[i] = fma(w[1], x.y, products[i]);
            products[i] = fma(w[2], x.z, products[i]);
            products[i] = fma(w[3], x.w, products[i]);
          }
        }
        FS_UNROLL
        for (int i = 0; i < count; ++i)
          sums[i] = scaled ? fma(scales[i], products[i], sums[i]) : sums[i] + products[i];
      }
      fetch(first + 32 * ahead);
    }
    FS_UNROLL
    for (int i = 0; i < count; ++i) sums[i] = lanes_sum(sums[i]);
  }

 private:
  static constexpr bool scaled = Weights::chunks_per_scale > 0;
  static constexpr int per_scale = scaled ? Weights::chunks_per_scale : 1;
  static constexpr int scales_ahead = 32 * ahead / per_scale, scales_held = (scales_ahead + 31) / 32;

  /// Chunks first, … of every row, 32 a load. A factor is loaded by one lane, and goes to the others that
  /// need it by shuffles.
  FS_DEVICE void fetch(int first) {
    FS_UNROLL
    for (int i = 0; i < count; ++i) {
      FS_UNROLL
      for (int a = 0; a < ahead; ++a) {
        const int chunk = first + 32 * a + lane_index();
        if (chunk < chunks_) held_[i][a] = load_streaming(data_[i] + static_cast<std::size_t>(chunk) * 16);
      }
      if constexpr (scaled) {
        FS_UNROLL
        for (int s = 0; s < scales_held; ++s) {
          const int ahead_of = 32 * s + lane_index(), at = first / per_scale + ahead_of;
          held_scales_[i][s] = ahead_of < scales_ahead && at < scales_of_row<Weights>(chunks_)
                                   ? load_streaming(scales_[i] + at)
                                   : F16{0};
        }
      }
    }
  }
  /// Of chunk `a` that this lane holds of row i.  By the whole warp.
  FS_DEVICE float scale(int i, int a) const {
    if constexpr (scaled) {
      return shuffle(to_float(held_scales_[i][a / per_scale]), (32 * a + lane_index()) / per_scale % 32);
    } else {
      return 1.0F;
    }
  }

  int chunks_;
  const unsigned char* data_[count];
  const F16* scales_[scaled ? count : 1];
  U32x4 held_[count][ahead];
  F16 held_scales_[scaled ? count : 1][scales_held];
};

/// How a stage of a decode step runs as a kernel of its own: there is a block for every set of rows, and it
/// begins when the kernel before has ended.
struct AsKernel {
  static constexpr bool one_pass = true;
  FS_DEVICE void wait() const { wait_for_previous_kernel(); }
};

/// The products of a stage of a decode step. A block's warps take `rows_each` neighbouring rows of each of
/// `of`, and then, unless run.one_pass, those of as many blocks as there are further on. After run.wait(), by
/// when the first weights are on their way, stage() puts the activations into `staged`. use(row, sums) is
/// called in one lane, with a sum for each matrix.
template <class Weights, int rows_each, int ahead, class Run, int matrices, class Stage, class Use>
FS_DEVICE void each_row(Run run, const MatrixPlanes (&of)[matrices], const float* staged, Stage stage,
                        Use use) {
  constexpr int of_block = gemv_warps * rows_each;
  const int rows = of[0].rows;
  int row = block_x() * of_block + warp_index() * rows_each;
  Rows<Weights, matrices, rows_each, ahead> weights;
  if constexpr (!Run::one_pass) weights.clear();
  weights.start(of, row);
  run.wait();
  if (!Run::one_pass && block_x() * of_block >= rows) return;
  stage();
  sync_threads();
  do {
    float sums[matrices * rows_each];
    weights.dot(staged, sums);
    if (lane_index() == 0) {
      FS_UNROLL
      for (int i = 0; i < rows_each; ++i) {
        if (row + i < rows) use(row + i, sums + matrices * i);
      }
    }
    if constexpr (Run::one_pass) break;
    row += grid_x() * of_block;
    if (row < rows) weights.start(of, row);
  } while (row < rows);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

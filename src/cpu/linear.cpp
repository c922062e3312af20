#include "cpu/linear.h"

#include <algorithm>

namespace fs::cpu {
namespace {

/// Up to here, dot products beat decoding panels (measured on AVX2).
constexpr std::size_t few_tokens = 15;
/// Columns of a panel decoded at once, whole blocks of every format: [256][16] floats are half of a
/// first-level cache, and the same columns of 256 tokens half of a second-level one.
constexpr std::size_t k_block = 256;
/// What a thread computes before it takes more work. With many tokens, outputs that use the activations while
/// they are in the second-level cache; with few, weights that take some ten microseconds to read, in four
/// streams.
constexpr std::size_t most_outputs = 64;
constexpr std::size_t most_bytes = std::size_t{1} << 17;
/// Floats of scratch for a decoded panel.
constexpr std::size_t panel_floats = k_block * panel_width;

const WeightKernels& kernels_of(const Kernels& kernels, model::Dtype dtype) {
  switch (dtype) {
    case model::Dtype::f32:
      return *kernels.f32;
    case model::Dtype::f16:
      return *kernels.f16;
    case model::Dtype::bf16:
      break;
    case model::Dtype::q8_0:
      return *kernels.q8_0;
    case model::Dtype::int4:
      return *kernels.int4;
  }
  return *kernels.bf16;
}

/// A few tokens as dots() of one Dtype takes them: [tokens] prepared, `stride` floats from each other.
struct Rows {
  const float* data = nullptr;
  std::size_t stride = 0;
};

/// The activations of one product. Many tokens are packed as gemm_packed reads them:
/// [k-blocks][tiles][k_block (the last may be shorter)][tile_rows], zero beyond the last token.
struct Input {
  Rows rows[model::dtype_count];  // with few tokens, for each Dtype among the weights
  const float* packed;            // null with few tokens
  std::size_t tokens, cols, tiles;
};

/// Prepares a few tokens for products with `w`.
void prepare(Team& team, const model::Matrix& w, std::span<const float> x, Input& input) {
  const auto dtype = static_cast<std::size_t>(w.dtype);
  Rows& rows = input.rows[dtype];
  if (input.packed != nullptr || rows.data != nullptr) return;
  rows = {x.data(), input.cols};
  const WeightKernels& kernels = kernels_of(team.kernels, w.dtype);
  if (kernels.prepare == nullptr) return;
  const std::size_t stride = kernels.prepared_floats(input.cols);
  team.prepared[dtype].reserve(input.tokens * stride);
  float* const prepared = team.prepared[dtype].data();
  for (std::size_t t = 0; t < input.tokens; ++t) {
    kernels.prepare(x.data() + t * input.cols, input.cols, prepared + t * stride);
  }
  rows = {prepared, stride};
}

Input pack(Team& team, std::span<const float> x, std::size_t cols) {
  const std::size_t tokens = x.size() / cols, height = team.kernels.tile_rows;
  Input input{{}, nullptr, tokens, cols, (tokens + height - 1) / height};
  if (tokens <= few_tokens) return input;
  team.packed.reserve(input.tiles * height * cols);
  float* const packed = team.packed.data();
  input.packed = packed;
  team.pool.for_each(input.tiles, [&](std::size_t tile, std::size_t) {
    for (std::size_t k = 0; k < cols; k += k_block) {
      const std::size_t depth = std::min(k_block, cols - k);
      float* to = packed + (k * input.tiles + tile * depth) * height;
      const float* const from = x.data() + tile * height * cols + k;
      const std::size_t here = std::min(height, tokens - tile * height);
      for (std::size_t i = 0; i < depth; ++i, to += height) {
        for (std::size_t m = 0; m < here; ++m) to[m] = from[m * cols + i];
        std::fill(to + here, to + height, 0.0F);
      }
    }
  });
  return input;
}

/// How the rows of matrices that share an input are handed out: in units of neighbouring rows, up to `most`
/// units at a time.
struct Cut {
  std::size_t unit, most;

  Cut(const Input& input, std::size_t row_bytes, std::size_t matrices_at_once) {
    constexpr std::size_t rows_at_once = 4;  // what dots() walks down side by side
    unit = input.packed ? panel_width : std::max(most_bytes / 8 / row_bytes, std::size_t{1});
    unit = (unit + rows_at_once - 1) / rows_at_once * rows_at_once;
    const std::size_t rows = (input.packed ? most_outputs : most_bytes / row_bytes) / matrices_at_once;
    most = std::max(rows / unit, std::size_t{1});
  }
  std::size_t units(const model::Matrix& w) const { return (w.rows + unit - 1) / unit; }
  /// Row stride of a block of outputs: its rows rounded up to whole panels.
  std::size_t ldc() const { return (most * unit + panel_width - 1) / panel_width * panel_width; }
};

/// Floats of a block of outputs.
std::size_t block_floats(const Team& team, const Input& input, const Cut& cut) {
  return (input.packed ? input.tiles * team.kernels.tile_rows : input.tokens) * cut.ldc();
}

/// c[t][i] = x[t] · w[first + i] for i < count.  c: [tokens or tiles·tile_rows, ldc]; panel: [k_block,
/// panel_width]
void multiply(const Kernels& kernels, const model::Matrix& w, std::size_t first, std::size_t count,
              const Input& input, float* c, std::size_t ldc, float* panel) {
  const WeightKernels& weights = kernels_of(kernels, w.dtype);
  const std::size_t row_bytes = w.row_bytes();
  const std::byte* const from = w.data + first * row_bytes;
  if (!input.packed) {
    const Rows& x = input.rows[static_cast<std::size_t>(w.dtype)];
    weights.dots(from, row_bytes, count, w.cols, x.data, x.stride, input.tokens, c, ldc);
    return;
  }
  for (std::size_t k = 0; k < w.cols; k += k_block) {
    const std::size_t depth = std::min(k_block, w.cols - k);
    const float* const a = input.packed + k * input.tiles * kernels.tile_rows;
    for (std::size_t i = 0; i < count; i += panel_width) {
      weights.panel(from + i * row_bytes, row_bytes, std::min(panel_width, count - i), k, depth, panel);
      kernels.gemm_packed(a, input.tiles, panel, depth, c + i, ldc, k > 0);
    }
  }
}

/// Multiplies and hands every token's part of a block of outputs to finish(c, count, out).
template <class Finish>
void project(Team& team, std::initializer_list<Projection> projections, std::span<const float> x,
             const Finish& finish) {
  const model::Matrix& any = projections.begin()->w;
  Input input = pack(team, x, any.cols);
  for (const Projection& projection : projections) prepare(team, projection.w, x, input);
  const Cut cut(input, any.row_bytes(), 1);
  team.reserve_scratch(panel_floats + block_floats(team, input, cut));
  std::size_t units = 0;
  for (const Projection& projection : projections) units += cut.units(projection.w);
  team.pool.for_ranges(units, cut.most, [&](std::size_t begin, std::size_t end, std::size_t thread) {
    float* const panel = team.scratch[thread].data();
    float* const c = panel + panel_floats;
    for (const auto& [w, out] : projections) {  // the range may begin in one matrix and end in another
      const std::size_t here = cut.units(w);
      if (begin < here && begin < end) {
        const std::size_t first = begin * cut.unit,
                          count = std::min(std::min(end, here) * cut.unit, w.rows) - first;
        multiply(team.kernels, w, first, count, input, c, cut.ldc(), panel);
        for (std::size_t t = 0; t < input.tokens; ++t) {
          finish(c + t * cut.ldc(), count, out.data() + t * w.rows + first);
        }
      }
      begin -= std::min(begin, here);
      end -= std::min(end, here);
    }
  });
}

}  // namespace

void linear(Team& team, std::initializer_list<Projection> projections, std::span<const float> x) {
  project(team, projections, x,
          [](const float* c, std::size_t count, float* out) { std::copy(c, c + count, out); });
}

void linear_add(Team& team, const model::Matrix& w, std::span<const float> x, std::span<float> out) {
  project(team, {{w, out}}, x,
          [&](const float* c, std::size_t count, float* to) { team.kernels.add(to, c, count); });
}

void linear_swiglu(Team& team, const model::Matrix& gate, const model::Matrix& up, std::span<const float> x,
                   std::span<float> out) {
  Input input = pack(team, x, gate.cols);
  prepare(team, gate, x, input);
  prepare(team, up, x, input);
  const Cut cut(input, gate.row_bytes(), 2);
  const std::size_t c_floats = block_floats(team, input, cut);
  team.reserve_scratch(panel_floats + 2 * c_floats);
  team.pool.for_ranges(
      cut.units(gate), cut.most, [&](std::size_t begin, std::size_t end, std::size_t thread) {
        const std::size_t first = begin * cut.unit, count = std::min(end * cut.unit, gate.rows) - first;
        float* const panel = team.scratch[thread].data();
        float* const gated = panel + panel_floats;
        float* const upped = gated + c_floats;
        multiply(team.kernels, gate, first, count, input, gated, cut.ldc(), panel);
        multiply(team.kernels, up, first, count, input, upped, cut.ldc(), panel);
        for (std::size_t t = 0; t < input.tokens; ++t) {
          team.kernels.swiglu(gated + t * cut.ldc(), upped + t * cut.ldc(), count);
          std::copy_n(gated + t * cut.ldc(), count, out.data() + t * gate.rows + first);
        }
      });
}

}  // namespace fs::cpu

#include "cpu/linear.h"

#include <algorithm>
#include <type_traits>

#include "cpu/activations.h"
#include "cpu/panels.h"

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

/// The products made for such activations; null where there are none.
const Products* products_with(const WeightKernels& weights, Activations activations) {
  return activations == Activations::int8   ? weights.int8
         : activations == Activations::bf16 ? weights.bf16
                                            : &weights.exact;
}

const DotKernels& dot_kernels(const WeightKernels& weights, Activations activations) {
  const Products* const made = products_with(weights, activations);
  return made != nullptr && made->dots.dots != nullptr ? made->dots : weights.exact.dots;
}

/// A few tokens as dots() of one Dtype takes them: [tokens] prepared, `stride` floats from each other.
struct Rows {
  const float* data = nullptr;
  std::size_t stride = 0;
};

/// Rows of the left-hand side that a kernel multiplies at once, at most.
constexpr std::size_t most_tile_rows = 24;

/// The activations of one product, in the forms that kernels read. Many tokens are packed in tiles of
/// tile_rows tokens: [k-blocks][tiles][k_block columns (the last may have fewer)], zero beyond the last
/// token.
struct Input {
  std::span<const float> x;  // [tokens, cols]
  std::size_t tokens, cols;
  bool many;
  Activations activations;

  Rows rows[model::dtype_count] = {};               // few tokens, for each Dtype among the weights
  const std::byte* tiles[model::dtype_count] = {};  // many tokens, for each Dtype

  std::size_t n_tiles(std::size_t tile_rows) const { return (tokens + tile_rows - 1) / tile_rows; }
};

/// Null where products are dots(): with a few tokens, and with many where there is nothing else for them.
const GemmKernels* gemm_kernels(const WeightKernels& weights, const Input& input) {
  if (!input.many) return nullptr;
  const Products* const made = products_with(weights, input.activations);
  return made != nullptr ? made->gemm : weights.exact.gemm;
}

/// x as products see it: itself, or a copy rounded to what the team's activations are.  x: [tokens, cols]
std::span<const float> rounded(Team& team, std::span<const float> x, std::size_t cols) {
  team.rounded.reserve(x.size());
  float* const out = team.rounded.data();
  const auto round = team.activations == Activations::bf16 ? round_bf16 : round_int8;
  team.pool.for_each(x.size() / cols, [&](std::size_t token, std::size_t) {
    round(x.data() + token * cols, cols, out + token * cols);
  });
  return {out, x.size()};
}

Input input_of(Team& team, std::span<const float> x, std::size_t cols) {
  const std::size_t tokens = x.size() / cols;
  // Weights in other formats are refused when the backend is made.
  const bool rounds_itself = team.activations == Activations::int8 && team.kernels.q8_0->int8 != nullptr;
  if (team.activations != Activations::f32 && !rounds_itself) x = rounded(team, x, cols);
  return {x, tokens, cols, tokens > few_tokens && !team.steps, team.activations};
}

/// Brings a few tokens into the form of `kernels`.
void prepare(Team& team, const DotKernels& kernels, std::size_t dtype, Input& input) {
  Rows& rows = input.rows[dtype];
  rows = {input.x.data(), input.cols};
  if (kernels.prepare == nullptr) return;
  constexpr std::size_t line = 16;  // floats of a cache line
  const std::size_t stride = (kernels.prepared_floats(input.cols) + line - 1) / line * line;
  team.prepared[dtype].reserve(input.tokens * stride);
  float* const prepared = team.prepared[dtype].data();
  const auto one = [&](std::size_t t, std::size_t) {
    kernels.prepare(input.x.data() + t * input.cols, input.cols, prepared + t * stride);
  };
  if (input.many) {
    team.pool.for_each(input.tokens, one);
  } else {
    for (std::size_t t = 0; t < input.tokens; ++t) one(t, 0);
  }
  rows = {prepared, stride};
}

/// Brings many tokens into the form of `kernels`.
void pack(Team& team, const GemmKernels& kernels, std::size_t dtype, Input& input) {
  const std::size_t height = kernels.tile_rows, n_tiles = input.n_tiles(height);
  const std::size_t block_bytes = n_tiles * kernels.tile_bytes(k_block);
  team.tiles[dtype].reserve((input.cols + k_block - 1) / k_block * block_bytes);
  std::byte* const tiles = team.tiles[dtype].data();
  team.pool.for_each(n_tiles, [&](std::size_t tile, std::size_t) {
    const std::size_t here = std::min(height, input.tokens - tile * height);
    for (std::size_t k = 0; k < input.cols; k += k_block) {
      const std::size_t depth = std::min(k_block, input.cols - k);
      kernels.pack(input.x.data() + tile * height * input.cols + k, input.cols, here, depth,
                   tiles + k / k_block * block_bytes + tile * kernels.tile_bytes(depth));
    }
  });
  input.tiles[dtype] = tiles;
}

/// Brings the input into the form that products with `w` read.
void prepare(Team& team, const model::Matrix& w, Input& input) {
  const auto dtype = static_cast<std::size_t>(w.dtype);
  const WeightKernels& kernels = kernels_of(team.kernels, w.dtype);
  const GemmKernels* const gemm = gemm_kernels(kernels, input);
  if (gemm == nullptr) {
    if (input.rows[dtype].data == nullptr) {
      prepare(team, dot_kernels(kernels, input.activations), dtype, input);
    }
  } else if (input.tiles[dtype] == nullptr) {
    pack(team, *gemm, dtype, input);
  }
}

/// How the rows of matrices that share an input are handed out: in units of neighbouring rows, up to `most`
/// units at a time.
struct Cut {
  std::size_t unit, most;

  Cut(const Input& input, std::size_t row_bytes, std::size_t matrices_at_once) {
    unit = input.many ? panel_width : std::max(most_bytes / 8 / row_bytes, std::size_t{1});
    unit = (unit + panel_width - 1) / panel_width * panel_width;
    const std::size_t rows = (input.many ? most_outputs : most_bytes / row_bytes) / matrices_at_once;
    most = std::max(rows / unit, std::size_t{1});
  }
  std::size_t units(const model::Matrix& w) const { return (w.rows + unit - 1) / unit; }
  /// Row stride of a block of outputs: its rows rounded up to whole panels.
  std::size_t ldc() const { return (most * unit + panel_width - 1) / panel_width * panel_width; }
};

/// Floats of a block of outputs.
std::size_t block_floats(const Input& input, const Cut& cut) {
  return (input.tokens + (input.many ? most_tile_rows - 1 : 0)) * cut.ldc();
}

/// c[t][i] = x[t] · w[first + i] for i < count.  c: [block_floats()] with row stride ldc; panel:
/// [panel_floats]
void multiply(const Kernels& kernels, const model::Matrix& w, std::size_t first, std::size_t count,
              const Input& input, float* c, std::size_t ldc, float* panel) {
  const auto dtype = static_cast<std::size_t>(w.dtype);
  const WeightKernels& weights = kernels_of(kernels, w.dtype);
  const bool arranged = weights.panels != nullptr;
  const std::size_t row_bytes = arranged ? weights.panels->bytes(w.cols) : w.row_bytes();
  const auto row_at = [&](std::size_t row) {
    return arranged ? w.arranged + row / panel_width * row_bytes : w.data + row * row_bytes;
  };
  const GemmKernels* const gemm = gemm_kernels(weights, input);
  if (gemm == nullptr) {
    const Rows& x = input.rows[dtype];
    dot_kernels(weights, input.activations)
        .dots(row_at(first), row_bytes, count, w.cols, x.data, x.stride, input.tokens, c, ldc);
    return;
  }
  const std::size_t n_tiles = input.n_tiles(gemm->tile_rows);
  for (std::size_t k = 0; k < w.cols; k += k_block) {
    const std::size_t depth = std::min(k_block, w.cols - k);
    const std::byte* const left = input.tiles[dtype] + k / k_block * n_tiles * gemm->tile_bytes(k_block);
    for (std::size_t i = 0; i < count; i += panel_width) {
      const std::byte* right = row_at(first + i);
      if (gemm->panel != nullptr) {
        auto* const turned = reinterpret_cast<std::byte*>(panel);
        gemm->panel(right, row_bytes, std::min(panel_width, count - i), k, depth, turned);
        right = turned;
      } else {
        right += gemm->panel_bytes(k);
      }
      gemm->gemm(left, n_tiles, right, depth, c + i, ldc, k > 0);
    }
  }
}

/// A finish() that puts outputs where they go and nothing else.
struct Copy {
  void operator()(const float* c, std::size_t count, float* out) const { std::copy_n(c, count, out); }
};

/// Multiplies and hands every token's part of a block of outputs to finish(c, count, out).
template <class Finish>
void project(Team& team, std::initializer_list<Projection> projections, std::span<const float> x,
             const Finish& finish) {
  const model::Matrix& any = projections.begin()->w;
  Input input = input_of(team, x, any.cols);
  for (const Projection& projection : projections) prepare(team, projection.w, input);
  const Cut cut(input, any.row_bytes(), 1);
  team.reserve_scratch(panel_floats + block_floats(input, cut));
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
        // Dot products of whole panels write nothing else and can go straight to where they belong.
        const bool dots = gemm_kernels(kernels_of(team.kernels, w.dtype), input) == nullptr;
        if (std::is_same_v<Finish, Copy> && dots && count % panel_width == 0) {
          multiply(team.kernels, w, first, count, input, out.data() + first, w.rows, panel);
        } else {
          multiply(team.kernels, w, first, count, input, c, cut.ldc(), panel);
          for (std::size_t t = 0; t < input.tokens; ++t) {
            finish(c + t * cut.ldc(), count, out.data() + t * w.rows + first);
          }
        }
      }
      begin -= std::min(begin, here);
      end -= std::min(end, here);
    }
  });
}

}  // namespace

void linear(Team& team, std::initializer_list<Projection> projections, std::span<const float> x) {
  project(team, projections, x, Copy{});
}

void linear_add(Team& team, const model::Matrix& w, std::span<const float> x, std::span<float> out) {
  project(team, {{w, out}}, x,
          [&](const float* c, std::size_t count, float* to) { team.kernels.add(to, c, count); });
}

void linear_swiglu(Team& team, const model::Matrix& gate, const model::Matrix& up, std::span<const float> x,
                   std::span<float> out) {
  Input input = input_of(team, x, gate.cols);
  prepare(team, gate, input);
  prepare(team, up, input);
  const Cut cut(input, gate.row_bytes(), 2);
  const std::size_t c_floats = block_floats(input, cut);
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
          team.kernels.swiglu(gated + t * cut.ldc(), upped + t * cut.ldc(), count,
                              out.data() + t * gate.rows + first);
        }
      });
}

}  // namespace fs::cpu

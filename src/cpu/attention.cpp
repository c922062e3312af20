#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

namespace fs::cpu {
namespace {

constexpr std::size_t block = KvCache::block;
/// Query rows (tokens × heads of a group) of a tile: their scores against one block fill half of a
/// first-level cache twice over, and a panel of keys is read from there by all of them.
constexpr std::size_t tile_rows = 48;
/// Up to this many tokens, the positions are split into spans of so many blocks.
constexpr std::size_t few_tokens = 16;
constexpr std::size_t span_blocks = 2;

/// How the attention of one segment is cut into pieces: tiles of tokens × spans of positions × KV heads. It
/// depends on the number of tokens and positions, never on that of threads or of segments.
struct Plan {
  const KvCache& cache;
  std::size_t tokens, first_row, first_position, group, dim, value_width;
  std::size_t tile_tokens, n_tiles, n_spans, blocks_per_span;
  std::size_t first_piece = 0, first_partial = 0;  ///< where its own begin among those of all segments

  Plan(const model::Config& c, const Segment& segment)
      : cache(segment.cache),
        tokens(segment.rows),
        first_row(segment.first_row),
        first_position(segment.first_position),
        group(c.group()),
        dim(c.head_dim),
        value_width(cache.value_width()) {
    tile_tokens = std::clamp(tile_rows / group, std::size_t{1}, tokens);
    n_tiles = (tokens + tile_tokens - 1) / tile_tokens;
    const std::size_t blocks = (first_position + tokens + block - 1) / block;
    blocks_per_span = tokens <= few_tokens ? span_blocks : blocks;
    n_spans = (blocks + blocks_per_span - 1) / blocks_per_span;
  }

  /// Floats of scratch a thread needs: queries, scores and weighted sums of a tile.
  std::size_t scratch() const { return tile_tokens * group * (dim + block + value_width + 2); }
  /// Floats of a partial result: the weighted sum, its peak and its total.
  std::size_t partial() const { return value_width + 2; }
};

/// One tile of queries of one KV head.
struct Tile {
  float *queries, *scores, *sums, *peaks, *totals;  // [rows, dim | block | value_width | 1 | 1]
  std::size_t first_token, tokens, rows;

  Tile(const Plan& plan, float* scratch, std::size_t index)
      : first_token(index * plan.tile_tokens),
        tokens(std::min(plan.tile_tokens, plan.tokens - first_token)),
        rows(tokens * plan.group) {
    queries = scratch;
    scores = queries + rows * plan.dim;
    sums = scores + rows * block;
    peaks = sums + rows * plan.value_width;
    totals = peaks + rows;
  }
};

/// Adds the positions of one block to the tile's sums.
void attend_block(const Kernels& kernels, const Plan& plan, const Tile& tile, const std::byte* keys,
                  const std::byte* values, std::size_t first_position) {
  const auto gemm_rows = plan.cache.kernels().gemm_rows;
  const std::size_t bytes = plan.cache.element_bytes();
  const auto visible = [&](std::size_t token) {  // how many of the block's positions a token of the tile sees
    const std::size_t end = plan.first_position + tile.first_token + token + 1;
    return end <= first_position ? 0 : std::min(block, end - first_position);
  };
  // Of a few tokens each sums a block that not all of them see whole by itself: in the order of a token
  // alone.
  const std::size_t seen = visible(tile.tokens - 1),
                    common = plan.tokens <= few_tokens && visible(0) < block ? 0 : visible(0);
  gemm_rows(tile.queries, plan.dim, tile.rows, keys, panel_width * plan.dim * bytes,
            (seen + panel_width - 1) / panel_width, plan.dim, tile.scores, block, false);
  for (std::size_t row = 0; row < tile.rows; ++row) {
    const float factor = kernels.softmax_step(tile.scores + row * block, visible(row / plan.group),
                                              tile.peaks + row, tile.totals + row);
    if (factor != 1) kernels.scale(tile.sums + row * plan.value_width, factor, plan.value_width);
  }
  const std::size_t panels = plan.value_width / panel_width, apart = block * panel_width * bytes;
  gemm_rows(tile.scores, block, tile.rows, values, apart, panels, common, tile.sums, plan.value_width, true);
  // Beyond what all tokens see, each goes as far as it sees: a zero weight would not keep out a value that
  // is not finite.
  for (std::size_t token = 0; token < tile.tokens; ++token) {
    const std::size_t row = token * plan.group;
    gemm_rows(tile.scores + row * block + common, block, plan.group, values + common * panel_width * bytes,
              apart, panels, visible(token) - common, tile.sums + row * plan.value_width, plan.value_width,
              true);
  }
}

/// out = Σ over spans of exp(peak − highest peak) · sums / the same sum of totals. partials: [spans] at a
/// stride.
void merge(const Plan& plan, const float* partials, std::size_t stride, float* out) {
  const std::size_t width = plan.value_width;
  float highest = partials[width];
  for (std::size_t span = 1; span < plan.n_spans; ++span) {
    highest = std::max(highest, partials[span * stride + width]);
  }
  double total = 0;
  std::fill(out, out + plan.dim, 0.0F);
  for (std::size_t span = 0; span < plan.n_spans; ++span) {
    const float* const partial = partials + span * stride;
    const float factor = std::exp(partial[width] - highest);
    total += double{factor} * partial[width + 1];
    for (std::size_t d = 0; d < plan.dim; ++d) out[d] += factor * partial[d];
  }
  const auto inverse = static_cast<float>(1 / total);
  for (std::size_t d = 0; d < plan.dim; ++d) out[d] *= inverse;
}

}  // namespace

void attention(Team& team, const model::Config& config, std::span<const float> q,
               std::span<const Segment> segments, std::size_t layer, std::span<float> out) {
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)));
  const std::size_t heads = config.n_q_heads;
  std::vector<Plan> plans;
  std::size_t pieces = 0, partials = 0, rows = 0;
  for (const Segment& segment : segments) {
    Plan& plan = plans.emplace_back(config, segment);
    plan.first_piece = pieces;
    plan.first_partial = partials;
    pieces += plan.n_tiles * plan.n_spans * config.n_kv_heads;
    partials += plan.n_spans * plan.tokens * heads * plan.partial();
    rows += plan.tokens;
    team.reserve_scratch(plan.scratch());
  }
  team.partials.reserve(partials);
  const auto plan_of = [&](std::size_t index, std::size_t Plan::*first) -> const Plan& {
    const auto after = std::upper_bound(plans.begin(), plans.end(), index,
                                        [&](std::size_t i, const Plan& plan) { return i < plan.*first; });
    return *std::prev(after);
  };

  team.pool.for_each(pieces, [&](std::size_t index, std::size_t thread) {
    const Plan& plan = plan_of(index, &Plan::first_piece);
    const std::size_t piece = index - plan.first_piece, kv_head = piece % config.n_kv_heads,
                      span = piece / config.n_kv_heads % plan.n_spans;
    const Tile tile(plan, team.scratch[thread].data(), piece / config.n_kv_heads / plan.n_spans);
    const auto head_of = [&](std::size_t row) {  // index of the row's (token, query head) in its segment
      return (tile.first_token + row / plan.group) * heads + kv_head * plan.group + row % plan.group;
    };
    const float* const queries = q.data() + plan.first_row * heads * plan.dim;
    for (std::size_t row = 0; row < tile.rows; ++row) {
      std::copy_n(queries + head_of(row) * plan.dim, plan.dim, tile.queries + row * plan.dim);
    }
    team.kernels.scale(tile.queries, scale, tile.rows * plan.dim);
    std::fill_n(tile.sums, tile.rows * plan.value_width, 0.0F);
    std::fill_n(tile.peaks, tile.rows, -std::numeric_limits<float>::infinity());
    std::fill_n(tile.totals, tile.rows, 0.0F);

    const std::size_t end = plan.first_position + tile.first_token + tile.tokens;
    const std::size_t first_block = span * plan.blocks_per_span;
    for (std::size_t b = first_block; b < first_block + plan.blocks_per_span && b * block < end; ++b) {
      attend_block(team.kernels, plan, tile, plan.cache.keys(layer, kv_head, b),
                   plan.cache.values(layer, kv_head, b), b * block);
    }
    float* const results = team.partials.data() + plan.first_partial;
    for (std::size_t row = 0; row < tile.rows; ++row) {
      float* const partial = results + (span * plan.tokens * heads + head_of(row)) * plan.partial();
      std::copy_n(tile.sums + row * plan.value_width, plan.value_width, partial);
      partial[plan.value_width] = tile.peaks[row];
      partial[plan.value_width + 1] = tile.totals[row];
    }
  });
  team.pool.for_each(rows, [&](std::size_t row, std::size_t) {
    const Plan& plan = plan_of(row, &Plan::first_row);
    const float* const results = team.partials.data() + plan.first_partial;
    for (std::size_t head = 0; head < heads; ++head) {
      merge(plan, results + ((row - plan.first_row) * heads + head) * plan.partial(),
            plan.tokens * heads * plan.partial(), out.data() + (row * heads + head) * plan.dim);
    }
  });
}

}  // namespace fs::cpu

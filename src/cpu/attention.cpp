#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

namespace fs::cpu {
namespace {

constexpr std::size_t block = KvCache::block;
/// Query rows (tokens × heads of a group) of a tile: their scores against one block fill half of a
/// first-level cache twice over, and a panel of keys is read from there by all of them.
constexpr std::size_t exact_tile_rows = 48;
/// Of rounded products: tiles that share a block's rounded keys and values.
constexpr std::size_t rounded_tiles = 10;
/// Up to this many tokens, the positions are split into spans of so many blocks.
constexpr std::size_t few_tokens = 16;
constexpr std::size_t span_blocks = 2;

/// How the attention of one segment is cut into pieces: strips of tiles of tokens × spans of positions × KV
/// heads. It depends on the number of tokens and positions, never on that of threads or of segments.
struct Plan {
  const KvCache& cache;
  const RoundedAttention* rounded;  ///< null where products are exact
  std::size_t tokens, first_row, first_position, group, dim, value_width;
  std::size_t tile_tokens, tile_rows, strip_tokens, n_strips, n_spans, blocks_per_span;
  std::size_t first_piece = 0, first_partial = 0;  ///< where its own begin among those of all segments

  Plan(const Team& team, const model::Config& c, const Segment& segment)
      : cache(segment.cache),
        rounded(team.activations != Activations::f32 && segment.rows > few_tokens && !team.steps
                    ? team.kernels.attention_bf16
                    : nullptr),
        tokens(segment.rows),
        first_row(segment.first_row),
        first_position(segment.first_position),
        group(c.group()),
        dim(c.head_dim),
        value_width(cache.value_width()) {
    const std::size_t at_once = rounded == nullptr ? exact_tile_rows : rounded->tile_rows;
    tile_tokens = std::clamp(at_once / group, std::size_t{1}, tokens);
    tile_rows = tile_tokens * group;
    if (rounded != nullptr) tile_rows = (tile_rows + at_once - 1) / at_once * at_once;
    strip_tokens = tile_tokens * (rounded == nullptr ? 1 : rounded_tiles);
    n_strips = (tokens + strip_tokens - 1) / strip_tokens;
    const std::size_t blocks = (first_position + tokens + block - 1) / block;
    blocks_per_span = tokens <= few_tokens ? span_blocks : blocks;
    n_spans = (blocks + blocks_per_span - 1) / blocks_per_span;
  }

  /// Floats of scratch that a thread needs.
  std::size_t scratch() const { return shared_floats() + strip_tokens / tile_tokens * tile_floats(); }
  /// What the tiles of a strip share: scores, and rounded to half as many floats, scores, keys and values.
  std::size_t shared_floats() const {
    return tile_rows * block + (rounded == nullptr ? 0 : (tile_rows + dim + value_width) * block / 2);
  }
  /// What each has: queries, weighted sums, peaks and totals.
  std::size_t tile_floats() const { return tile_rows * (dim + value_width + 2); }
  /// Floats of a partial result: the weighted sum, its peak and its total.
  std::size_t partial() const { return value_width + 2; }
};

/// One tile of queries of one KV head.
struct Tile {
  float *queries, *sums, *peaks, *totals;  // [tile_rows, dim | value_width | 1 | 1]
  std::size_t first_token, tokens, rows;

  Tile(const Plan& plan, float* memory, std::size_t first)
      : first_token(first),
        tokens(std::min(plan.tile_tokens, plan.tokens - first_token)),
        rows(tokens * plan.group) {
    queries = memory;
    sums = queries + plan.tile_rows * plan.dim;
    peaks = sums + plan.tile_rows * plan.value_width;
    totals = peaks + plan.tile_rows;
  }
  /// In place of the queries, for rounded products.
  std::uint16_t* rounded_queries() const { return reinterpret_cast<std::uint16_t*>(queries); }
};

/// A block of positions as the tiles of a strip meet it, and what they share.
struct Block {
  const std::byte *keys, *values;
  std::size_t first_position;
  float* scores;                                                  // [tile_rows, block]
  std::uint16_t *rounded_scores, *rounded_keys, *rounded_values;  // the same; panels

  Block(const Plan& plan, float* memory, std::size_t layer, std::size_t kv_head, std::size_t index)
      : keys(plan.cache.keys(layer, kv_head, index)),
        values(plan.cache.values(layer, kv_head, index)),
        first_position(index * block),
        scores(memory) {
    rounded_scores = reinterpret_cast<std::uint16_t*>(scores + plan.tile_rows * block);
    rounded_keys = rounded_scores + plan.tile_rows * block;
    rounded_values = rounded_keys + plan.dim * block;
  }

  /// Rounds the first `positions`.
  void round(const Plan& plan, std::size_t positions) const {
    const RoundedAttention& kernels = *plan.rounded;
    const auto panel = plan.cache.dtype() == model::Dtype::f32   ? kernels.f32
                       : plan.cache.dtype() == model::Dtype::f16 ? kernels.f16
                                                                 : kernels.bf16;
    const std::size_t bytes = plan.cache.element_bytes();
    for (std::size_t at = 0; at < positions; at += panel_width) {
      panel(keys + at * plan.dim * bytes, plan.dim, rounded_keys + at * plan.dim);
    }
    for (std::size_t at = 0; at < plan.value_width; at += panel_width) {
      panel(values + at * block * bytes, positions / 2 * 2, rounded_values + at * block);
    }
  }
};

/// Adds the positions of one block to the tile's sums.
void attend_block(const Kernels& kernels, const Plan& plan, const Tile& tile, const Block& keys_and_values) {
  const auto gemm_rows = plan.cache.kernels().gemm_rows;
  const std::size_t bytes = plan.cache.element_bytes(), width = plan.value_width;
  const auto& [keys, values, first_position, scores, rounded_scores, rounded_keys, rounded_values] =
      keys_and_values;
  const auto visible = [&, first = first_position](std::size_t token) {  // positions that a token sees
    const std::size_t end = plan.first_position + tile.first_token + token + 1;
    return end <= first ? 0 : std::min(block, end - first);
  };
  // Of a few tokens each sums a block that not all of them see whole by itself: in the order of a token
  // alone.
  std::size_t common = plan.tokens <= few_tokens && visible(0) < block ? 0 : visible(0);
  const std::size_t panels = (visible(tile.tokens - 1) + panel_width - 1) / panel_width;
  if (plan.rounded != nullptr) {
    plan.rounded->gemm_rows(tile.rounded_queries(), plan.dim, plan.tile_rows, rounded_keys,
                            panel_width * plan.dim, panels, plan.dim, scores, block, false);
  } else {
    gemm_rows(tile.queries, plan.dim, tile.rows, keys, panel_width * plan.dim * bytes, panels, plan.dim,
              scores, block, false);
  }
  for (std::size_t row = 0; row < tile.rows; ++row) {
    const float factor = kernels.softmax_step(scores + row * block, visible(row / plan.group),
                                              tile.peaks + row, tile.totals + row);
    if (factor != 1) kernels.scale(tile.sums + row * width, factor, width);
  }
  const std::size_t apart = block * panel_width, value_panels = width / panel_width;
  if (plan.rounded != nullptr) {
    common = common / 2 * 2;
    for (std::size_t row = 0; row < tile.rows; ++row) {
      plan.rounded->round(scores + row * block, common, rounded_scores + row * block);
    }
    plan.rounded->gemm_rows(rounded_scores, block, plan.tile_rows, rounded_values, apart, value_panels,
                            common, tile.sums, width, true);
  } else {
    gemm_rows(scores, block, tile.rows, values, apart * bytes, value_panels, common, tile.sums, width, true);
  }
  // Beyond what all tokens see, each goes as far as it sees: a zero weight would not keep out a value that
  // is not finite.
  for (std::size_t token = 0; token < tile.tokens; ++token) {
    const std::size_t row = token * plan.group;
    gemm_rows(scores + row * block + common, block, plan.group, values + common * panel_width * bytes,
              apart * bytes, value_panels, visible(token) - common, tile.sums + row * width, width, true);
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
    Plan& plan = plans.emplace_back(team, config, segment);
    plan.first_piece = pieces;
    plan.first_partial = partials;
    pieces += plan.n_strips * plan.n_spans * config.n_kv_heads;
    if (plan.n_spans > 1) partials += plan.n_spans * plan.tokens * heads * plan.partial();
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
                      span = piece / config.n_kv_heads % plan.n_spans,
                      strip = piece / config.n_kv_heads / plan.n_spans * plan.strip_tokens;
    float* const shared = team.scratch[thread].data();
    std::vector<Tile> tiles;
    const auto head_of = [&](const Tile& tile, std::size_t row) {  // index of the row's (token, query head)
      return (tile.first_token + row / plan.group) * heads + kv_head * plan.group + row % plan.group;
    };
    const float* const queries = q.data() + plan.first_row * heads * plan.dim;
    const std::size_t end_token = std::min(strip + plan.strip_tokens, plan.tokens);
    for (std::size_t token = strip; token < end_token; token += plan.tile_tokens) {
      float* const memory = shared + plan.shared_floats() + tiles.size() * plan.tile_floats();
      const Tile& tile = tiles.emplace_back(plan, memory, token);
      for (std::size_t row = 0; row < tile.rows; ++row) {
        const float* const query = queries + head_of(tile, row) * plan.dim;
        float* const to = plan.rounded == nullptr ? tile.queries + row * plan.dim : tile.sums;
        std::copy_n(query, plan.dim, to);
        team.kernels.scale(to, scale, plan.dim);
        if (plan.rounded != nullptr) {
          plan.rounded->round(to, plan.dim, tile.rounded_queries() + row * plan.dim);
        }
      }
      std::fill_n(tile.sums, plan.tile_rows * plan.value_width, 0.0F);
      std::fill_n(tile.peaks, plan.tile_rows, -std::numeric_limits<float>::infinity());
      std::fill_n(tile.totals, plan.tile_rows, 0.0F);
    }

    const auto end_of = [&](const Tile& tile) {
      return plan.first_position + tile.first_token + tile.tokens;
    };
    const std::size_t first_block = span * plan.blocks_per_span, end = end_of(tiles.back());
    for (std::size_t b = first_block; b < first_block + plan.blocks_per_span && b * block < end; ++b) {
      const Block keys_and_values(plan, shared, layer, kv_head, b);
      if (plan.rounded != nullptr) keys_and_values.round(plan, std::min(block, end - b * block));
      for (const Tile& tile : tiles) {
        if (b * block < end_of(tile)) attend_block(team.kernels, plan, tile, keys_and_values);
      }
    }
    float* const results = team.partials.data() + plan.first_partial;
    for (const Tile& tile : tiles) {
      for (std::size_t row = 0; row < tile.rows; ++row) {
        const float* const sums = tile.sums + row * plan.value_width;
        if (plan.n_spans == 1) {
          float* const to = out.data() + (plan.first_row * heads + head_of(tile, row)) * plan.dim;
          std::copy_n(sums, plan.dim, to);
          team.kernels.scale(to, static_cast<float>(1 / double{tile.totals[row]}), plan.dim);
          continue;
        }
        float* const partial = results + (span * plan.tokens * heads + head_of(tile, row)) * plan.partial();
        std::copy_n(sums, plan.value_width, partial);
        partial[plan.value_width] = tile.peaks[row];
        partial[plan.value_width + 1] = tile.totals[row];
      }
    }
  });
  if (partials == 0) return;
  team.pool.for_each(rows, [&](std::size_t row, std::size_t) {
    const Plan& plan = plan_of(row, &Plan::first_row);
    if (plan.n_spans == 1) return;
    const float* const results = team.partials.data() + plan.first_partial;
    for (std::size_t head = 0; head < heads; ++head) {
      merge(plan, results + ((row - plan.first_row) * heads + head) * plan.partial(),
            plan.tokens * heads * plan.partial(), out.data() + (row * heads + head) * plan.dim);
    }
  });
}

}  // namespace fs::cpu

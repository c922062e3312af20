#include "model/synthetic.h"

#include <cmath>

#include "base/error.h"
#include "model/dtype.h"

namespace fs::model {
namespace {

struct Shape {
  std::string_view name;
  Config config;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    const Config small{.vocab_size = 151936,
                       .hidden = 1024,
                       .intermediate = 3072,
                       .n_layers = 28,
                       .n_q_heads = 16,
                       .n_kv_heads = 8,
                       .head_dim = 128,
                       .max_positions = 40960,
                       .rms_norm_eps = 1e-6,
                       .rope_theta = 1e6,
                       .tie_word_embeddings = true};
    Config medium = small;
    medium.hidden = 2048;
    medium.intermediate = 6144;
    Config large = small;
    large.hidden = 2560;
    large.intermediate = 9728;
    large.n_layers = 36;
    large.n_q_heads = 32;
    // No width a multiple of a vector or a block: finds every remainder loop that is wrong.
    const Config odd{.vocab_size = 347,
                     .hidden = 72,
                     .intermediate = 151,
                     .n_layers = 3,
                     .n_q_heads = 6,
                     .n_kv_heads = 2,
                     .head_dim = 20,
                     .max_positions = 4096,
                     .rms_norm_eps = 1e-6,
                     .rope_theta = 1e4,
                     .tie_word_embeddings = false};
    return std::vector<Shape>{
        {"qwen3-0.6b", small}, {"qwen3-1.7b", medium}, {"qwen3-4b", large}, {"tiny-odd", odd}};
  }();
  return all;
}

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

/// value = offset + scale · x with x uniform in [−1, 1).
struct Distribution {
  float offset, scale;
};

Distribution distribution(std::string_view tensor, std::size_t cols) {
  const auto is = [&](std::string_view part) { return tensor.find(part) != std::string_view::npos; };
  const double unit = std::sqrt(3.0 / static_cast<double>(cols));
  if (is("embed_tokens") || is("lm_head")) return {0, 0.05F};
  if (is("q_norm") || is("k_norm")) return {1.5F, 0.5F};
  if (is("norm")) return {1, 0.25F};
  if (is("o_proj") || is("down_proj")) return {0, static_cast<float>(0.5 * unit)};
  return {0, static_cast<float>(unit)};
}

}  // namespace

std::vector<std::string_view> synthetic_shapes() {
  std::vector<std::string_view> names;
  for (const Shape& shape : shapes()) names.push_back(shape.name);
  return names;
}

Config synthetic_config(std::string_view name) {
  for (const Shape& shape : shapes()) {
    if (shape.name == name) return shape.config;
  }
  fail(ExitCode::unusable, "synthetic:{}: unknown shape, expected one of {}", name,
       fmt::join(synthetic_shapes(), ", "));
}

void synthesize(std::uint64_t seed, std::string_view tensor, std::size_t cols, std::size_t first,
                std::span<std::uint16_t> out) {
  constexpr std::uint64_t step = 0x9E3779B97F4A7C15U;
  const std::uint64_t key = fnv1a64(tensor) ^ mix(seed);
  const auto [offset, scale] = distribution(tensor, cols);
  const std::uint64_t start = key + (first + 1) * step;
  std::uint16_t* const to = out.data();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t h = mix(start + i * step);
    const float x = static_cast<float>(static_cast<std::int32_t>(h >> 40)) * 0x1p-23F - 1.0F;
    to[i] = float_to_bf16(offset + scale * x);
  }
}

}  // namespace fs::model

#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"
#include "model/config.h"
#include "model/synthetic.h"
#include "model/weights.h"

namespace fs::testing {

/// The synthetic weights (see model/synthetic.h) of any configuration, not only of a named shape.
inline model::Weights synthetic_weights(const model::Config& config, std::uint64_t seed = 0) {
  std::vector<model::Tensor> tensors;
  std::vector<std::shared_ptr<const void>> storage;
  for (auto& [name, shape] : model::expected_tensors(config)) {
    std::size_t elements = 1;
    for (const std::size_t extent : shape) elements *= extent;
    const auto data = std::make_shared<std::vector<std::uint16_t>>(elements);
    model::synthesize(seed, name, shape.back(), 0, *data);
    tensors.push_back({name, model::Dtype::bf16, shape, std::as_bytes(std::span(*data)), {}});
    storage.push_back(data);
  }
  return model::assemble(config, tensors, "a test", std::move(storage));
}

/// A model in which no two extents are equal, with tied embeddings: small enough to run in a blink.
inline model::Config small_config() {
  return {.vocab_size = 53,
          .hidden = 26,
          .intermediate = 37,
          .n_layers = 2,
          .n_q_heads = 6,
          .n_kv_heads = 3,
          .head_dim = 10,
          .max_positions = 300,
          .rms_norm_eps = 1e-6,
          .rope_theta = 1e4,
          .tie_word_embeddings = true};
}

/// `count` token ids that look random and differ with `seed`.
inline std::vector<TokenId> some_tokens(std::size_t count, std::size_t vocab_size, std::uint64_t seed = 1) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    token = static_cast<TokenId>((seed >> 33) % vocab_size);
  }
  return tokens;
}

}  // namespace fs::testing

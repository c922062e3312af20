#pragma once
#include <cstddef>

namespace fs::model {

// What a configuration may say, whatever file it is in: far above any dense Qwen3, and low enough that no
// product of three of them leaves 64 bits.
inline constexpr std::size_t most_width = std::size_t{1}
                                          << 24;  ///< vocabulary, hidden, intermediate, positions
inline constexpr std::size_t most_layers = 1024;
inline constexpr std::size_t most_heads = std::size_t{1} << 16;  ///< and the width of one
inline constexpr double least_rms_norm_eps = 1e-12, most_rms_norm_eps = 1;
inline constexpr double least_rope_theta = 1, most_rope_theta = 1e12;

}  // namespace fs::model

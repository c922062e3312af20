#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "base/types.h"
#include "model/config.h"

namespace fs::model {

/// Synthetic models: every weight is a pure function of (seed, tensor name, index), the same here and in
/// tools/synthetic.py, so that a model of the exact Qwen3-0.6B shape exists everywhere without a download.
///
///   key   = fnv1a64(tensor name) ^ mix(seed)
///   h     = mix(key + (index + 1) · 0x9E3779B97F4A7C15)             mod 2^64; index counts row-major
///   x     = (h >> 40) · 2^-23 − 1                                   fp32, exact, in [−1, 1)
///   value = bf16(offset + scale · x)                                fp32, each operation rounded once, then
///   RNE mix(z): z = (z ^ z>>30)·0xBF58476D1CE4E5B9; z = (z ^ z>>27)·0x94D049BB133111EB; z ^ z>>31
///
///   tensor                                offset   scale
///   embed_tokens, lm_head                 0        0.05
///   q, k, v, gate, up projections         0        float(sqrt(3 / cols))         unit variance out of unit
///   RMS in o_proj, down_proj                     0        float(0.5 · sqrt(3 / cols)) input, post-attention,
///   final norm     1        0.25 q_norm, k_norm                        1.5      0.5 so that attention is not
///   uniform
///
/// mix() is splitmix64's output function (Steele, Lea, Flood 2014); fnv1a64 is FNV-1a with the 64-bit
/// constants.

/// "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "tiny-odd".
std::vector<std::string_view> synthetic_shapes();

/// The configuration of a shape. Throws Error(unusable) naming the known shapes.
Config synthetic_config(std::string_view shape);

/// Fills out with bf16 elements [first, first + out.size()) of a tensor. `cols` is its last dimension.
void synthesize(std::uint64_t seed, std::string_view tensor, std::size_t cols, std::size_t first,
                std::span<std::uint16_t> out);

/// Writes a synthetic model as a checkpoint directory that Hugging Face transformers loads too: config.json,
/// generation_config.json and model.safetensors, with bounded memory. Creates `directory` if need be.
/// Progress: stage "write", in bytes. Throws Error(unusable) for an unknown shape; Error(failed) if one of
/// the files exists and `force` is not set, or cannot be written. The weights come first and config.json
/// last, so that an interrupted directory is not taken for a checkpoint.
void write_synthetic_checkpoint(std::string_view shape, std::uint64_t seed,
                                const std::filesystem::path& directory, bool force, ThreadPool& pool,
                                const Progress& progress = {});

}  // namespace fs::model

#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace fs::cli {

/// A published file, by its content.
struct Pin {
  std::string_view file;
  std::string_view sha256;
  std::uint64_t bytes;  ///< 0 where only the hash is known
};

/// Hugging Face Qwen/Qwen3-0.6B at revision c1899de289a04d12100db370d81485cdf75e47ca.
inline constexpr std::string_view qwen3_0_6b_revision = "c1899de289a04d12100db370d81485cdf75e47ca";
inline constexpr std::array<Pin, 4> qwen3_0_6b_pins = {{
    {"config.json", "660db3b73d788119c04535e48cf9be5f55bc3100841a718637ae695b442f27dd", 0},
    {"tokenizer.json", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4", 0},
    {"tokenizer_config.json", "d5d09f07b48c3086c508b30d1c9114bd1189145b74e982a265350c923acd8101", 0},
    {"model.safetensors", "f47f71177f32bcd101b7573ec9171e6a57f4f4d31148d38e382306f42996874b", 1'503'300'328},
}};

}  // namespace fs::cli

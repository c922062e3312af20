#pragma once
#include <cstddef>

/// What rounded activations (Activations, cpu/backend.h) stand for, in plain code: the definition that
/// kernels in integers are held to, and all there is where an instruction set has no such kernels.
namespace fs::cpu {

/// Activations of an int8 block.
inline constexpr std::size_t int8_block = 32;

/// A block's q and d, n ≤ int8_block of them: x ≈ d · q. A largest magnitude below 2^-100 counts as 0. If a
/// value is not finite d is NaN and every q is 1, so that all products with the block are NaN.
float quantize_int8(const float* x, std::size_t n, signed char* q);

/// out = what x is rounded to. x, out: [n], n a whole row; they may be the same.
void round_int8(const float* x, std::size_t n, float* out);
void round_bf16(const float* x, std::size_t n, float* out);

}  // namespace fs::cpu

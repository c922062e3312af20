#pragma once
#include <cstdint>

#include "emulator/collectives.h"

/// Twins of PTX: what ldmatrix, mma.sync and dp4a do, by the fragment layouts of the PTX ISA.
namespace fs::gpu::emulator {

/// ldmatrix.x4: lane i names the 16-byte row i % 8 of matrix i / 8 in shared memory.
struct LoadMatrixPayload {
  const void* row = nullptr;
  std::uint32_t fragments[4] = {};
};
void load_matrices(const Lanes& lanes);
void load_matrices_transposed(const Lanes& lanes);
/// Throws Fault if a row is not aligned to 16 bytes.
void check_matrix_row(const void* row, Where where);

/// mma.m16n8k16, A row-major and B column-major bf16, D += A·B in fp32, cut off at its last bit.
struct MultiplyPayload {
  float* d = nullptr;                // [4]
  const std::uint32_t* a = nullptr;  // [4] pairs of bf16
  std::uint32_t b[2] = {};
};
void multiply_bf16(const Lanes& lanes);

/// c + Σ a[i]·b[i] over four signed bytes.
std::int32_t dot_of_bytes(std::uint32_t a, std::uint32_t b, std::int32_t c);

}  // namespace fs::gpu::emulator

#include "emulator/tensor_core.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace fs::gpu::emulator {
namespace {

float bf16_half(std::uint32_t pair, unsigned half) {
  return std::bit_cast<float>(half == 0 ? pair << 16U : pair & 0xFFFF0000U);
}

/// Tensor cores do not round a sum to the nearest, they cut it off: a long chain of them drifts.
float towards_zero(double value) {
  const auto nearest = static_cast<float>(value);
  return std::abs(double{nearest}) > std::abs(value) ? std::nextafter(nearest, 0.0F) : nearest;
}

void load(const Lanes& lanes, bool transposed) {
  if (lanes.mask != ~0U) fault("ldmatrix with mask {:08x}: all lanes are needed", lanes.mask);
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t m[8][8];
    for (unsigned row = 0; row < 8; ++row) {
      std::memcpy(m[row], lanes.of<LoadMatrixPayload>(matrix * 8 + row).row, 16);
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned row = lane / 4, column = lane % 4 * 2;
      const std::uint32_t low = transposed ? m[column][row] : m[row][column];
      const std::uint32_t high = transposed ? m[column + 1][row] : m[row][column + 1];
      lanes.of<LoadMatrixPayload>(lane).fragments[matrix] = low | high << 16U;
    }
  }
}

}  // namespace

void load_matrices(const Lanes& lanes) { load(lanes, false); }
void load_matrices_transposed(const Lanes& lanes) { load(lanes, true); }

void check_matrix_row(const void* row, Where where) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    fault("{}: ldmatrix of a row that is not aligned to 16 bytes", where.text());
  }
  note_read(row, 16);
}

void multiply_bf16(const Lanes& lanes) {
  if (lanes.mask != ~0U) fault("mma with mask {:08x}: all lanes are needed", lanes.mask);
  float a[16][16], b[8][16];  // b: columns of B
  for (unsigned lane = 0; lane < 32; ++lane) {
    const auto& own = lanes.of<MultiplyPayload>(lane);
    const unsigned group = lane / 4, pair = lane % 4 * 2;
    for (unsigned half = 0; half < 2; ++half) {
      for (unsigned r = 0; r < 4; ++r) {
        a[group + 8 * (r & 1U)][pair + half + 8 * (r >> 1U)] = bf16_half(own.a[r], half);
      }
      b[group][pair + half] = bf16_half(own.b[0], half);
      b[group][pair + half + 8] = bf16_half(own.b[1], half);
    }
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    const auto& own = lanes.of<MultiplyPayload>(lane);
    const unsigned group = lane / 4, pair = lane % 4 * 2;
    for (unsigned r = 0; r < 4; ++r) {
      const float* const row = a[group + 8 * (r >> 1U)];
      const float* const column = b[pair + (r & 1U)];
      double sum = own.d[r];
      for (unsigned k = 0; k < 16; ++k) sum += double{row[k]} * column[k];
      own.d[r] = towards_zero(sum);
    }
  }
}

std::int32_t dot_of_bytes(std::uint32_t a, std::uint32_t b, std::int32_t c) {
  for (unsigned i = 0; i < 32; i += 8) {
    c += static_cast<std::int8_t>(a >> i & 0xFFU) * static_cast<std::int8_t>(b >> i & 0xFFU);
  }
  return c;
}

}  // namespace fs::gpu::emulator

#include "cpu/avx512.h"
#include "cpu/vector_gemm.h"

namespace fs::cpu {

std::size_t avx512_tile_bytes(std::size_t cols) { return cols * avx512_tile_rows * sizeof(float); }

void avx512_pack(const float* x, std::size_t x_stride, std::size_t rows, std::size_t cols, std::byte* tile) {
  pack<avx512_tile_rows>(x, x_stride, rows, cols, reinterpret_cast<float*>(tile));
}

void avx512_gemm(const std::byte* tiles, std::size_t n_tiles, const std::byte* panel, std::size_t cols,
                 float* c, std::size_t ldc, bool accumulate) {
  gemm_packed<avx512_tile_rows>(reinterpret_cast<const float*>(tiles), n_tiles, panel, cols, c, ldc,
                                accumulate);
}

constexpr CacheKernels avx512_cache_f32 = cache_f32;
constexpr CacheKernels avx512_cache_f16 = cache_f16;
constexpr CacheKernels avx512_cache_bf16 = cache_bf16;

}  // namespace fs::cpu

#include "cpu/avx2.h"
#include "cpu/vector_gemm.h"

namespace fs::cpu {

void avx2_pack(const float* x, std::size_t x_stride, std::size_t rows, std::size_t cols, float* tile) {
  pack<avx2_tile_rows>(x, x_stride, rows, cols, tile);
}

void avx2_gemm_packed(const float* a, std::size_t tiles, const float* panel, std::size_t k, float* c,
                      std::size_t ldc, bool accumulate) {
  gemm_packed<avx2_tile_rows>(a, tiles, panel, k, c, ldc, accumulate);
}

constexpr CacheKernels avx2_cache_f32 = cache_f32;
constexpr CacheKernels avx2_cache_f16 = cache_f16;
constexpr CacheKernels avx2_cache_bf16 = cache_bf16;

}  // namespace fs::cpu

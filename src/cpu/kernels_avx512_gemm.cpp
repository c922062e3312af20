#include "cpu/avx512.h"
#include "cpu/vector_gemm.h"

namespace fs::cpu {

void avx512_pack(const float* x, std::size_t x_stride, std::size_t rows, std::size_t cols, float* tile) {
  pack<avx512_tile_rows>(x, x_stride, rows, cols, tile);
}

void avx512_gemm_packed(const float* a, std::size_t tiles, const float* panel, std::size_t k, float* c,
                        std::size_t ldc, bool accumulate) {
  gemm_packed<avx512_tile_rows>(a, tiles, panel, k, c, ldc, accumulate);
}

constexpr CacheKernels avx512_cache_f32 = cache_f32;
constexpr CacheKernels avx512_cache_f16 = cache_f16;
constexpr CacheKernels avx512_cache_bf16 = cache_bf16;

}  // namespace fs::cpu

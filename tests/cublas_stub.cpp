// Stands in for cuBLAS in cuda_blas_test: four of its functions, in plain loops, and a log of their calls.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>

namespace {
std::string calls;
int failing_create = 0, failing_gemm = 0;

float element(const void* matrix, int column, int pitch, int row) {
  const auto bits = static_cast<const std::uint16_t*>(
      matrix)[static_cast<std::size_t>(column) * static_cast<std::size_t>(pitch) +
              static_cast<std::size_t>(row)];
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}
}  // namespace

extern "C" {

/// What was called since the last time.
const char* fs_stub_calls() {
  static std::string taken;
  taken = calls;
  calls.clear();
  return taken.c_str();
}
void fs_stub_fail(int create, int gemm) {
  failing_create = create;
  failing_gemm = gemm;
}

int cublasCreate_v2(void** handle) {
  calls += "create ";
  *handle = &calls;
  return failing_create;
}
int cublasDestroy_v2(void* handle) {
  calls += handle == &calls ? "destroy " : "destroy? ";
  return 0;
}
int cublasSetStream_v2(void* handle, void*) { return handle == &calls ? 0 : 1; }

int cublasGemmEx(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
                 const void* a, int type_a, int lda, const void* b, int type_b, int ldb, const void* beta,
                 void* c, int type_c, int ldc, int compute_type, int algorithm) {
  char text[160];
  std::snprintf(text, sizeof text, "gemm(%d,%d m=%d n=%d k=%d lda=%d ldb=%d ldc=%d beta=%g) ", transpose_a,
                transpose_b, m, n, k, lda, ldb, ldc, double{*static_cast<const float*>(beta)});
  calls += text;
  const bool understood = handle == &calls && transpose_a == 1 && transpose_b == 0 && type_a == 14 &&
                          type_b == 14 && type_c == 0 && compute_type == 68 && algorithm == -1 && lda >= k &&
                          ldb >= k && ldc >= m;
  if (!understood) return 7;
  if (failing_gemm != 0) return failing_gemm;
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < m; ++row) {
      double sum = 0;
      for (int i = 0; i < k; ++i) sum += double{element(a, row, lda, i)} * element(b, column, ldb, i);
      float* const to =
          static_cast<float*>(c) + static_cast<std::size_t>(column) * static_cast<std::size_t>(ldc) + row;
      const float before =
          *static_cast<const float*>(beta) == 0 ? 0.0F : *to;  // as BLAS defines it: not read
      *to = static_cast<float>(double{*static_cast<const float*>(alpha)} * sum + before);
    }
  }
  return 0;
}

}  // extern "C"

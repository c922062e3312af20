#include "cuda/blas.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/error.h"

namespace fs::cuda::FS_GPU_BUILD {

std::vector<std::string> cublas_names() {
#if defined(FS_EMULATED)
  return {};
#else
  return {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
#endif
}

/// The four functions that are used, as cublas_v2.h declares them since version 11, enumerations as int.
struct Blas::Library {
  void* file = nullptr;
  void* handle = nullptr;
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*set_stream)(void* handle, void* stream) = nullptr;
  int (*gemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
              const void* a, int type_a, int lda, const void* b, int type_b, int ldb, const void* beta,
              void* c, int type_c, int ldc, int compute_type, int algorithm) = nullptr;

  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (handle != nullptr) destroy(handle);
    if (file != nullptr) dlclose(file);
  }
  template <class Function>
  bool find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(file, name));
    return function != nullptr;
  }
};

namespace {

// Values of cublas_api.h and library_types.h.
constexpr int no_transpose = 0, transpose = 1;
constexpr int real_32f = 0, real_16bf = 14, compute_32f = 68, default_algorithm = -1;

void check(int status, const char* call) {
  if (status != 0) fail(ExitCode::device, "cuBLAS: {} failed with status {}", call, status);
}

}  // namespace

Blas::Blas(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Blas::~Blas() = default;

std::unique_ptr<Blas> Blas::open(const std::vector<std::string>& names, std::string& reason) {
  reason = "no library of that name";
  for (const std::string& name : names) {
    auto library = std::make_unique<Library>();
    library->file = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library->file == nullptr) continue;
    if (!library->find("cublasCreate_v2", library->create) ||
        !library->find("cublasDestroy_v2", library->destroy) ||
        !library->find("cublasSetStream_v2", library->set_stream) ||
        !library->find("cublasGemmEx", library->gemm)) {
      reason = name + " lacks functions";
    } else if (const int status = library->create(&library->handle); status != 0) {
      library->handle = nullptr;
      reason = fmt::format("{}: cublasCreate failed with status {}", name, status);
    } else {
      return std::unique_ptr<Blas>(new Blas(std::move(library)));
    }
  }
  return nullptr;
}

void Blas::linear(gpu::Stream& stream, const gpu::DeviceMatrix& w, const gpu::SplitRows& x, int rows,
                  bool add, float* out) const {
  // cuBLAS takes matrices by columns, and so sees ours transposed: outᵀ = W·xᵀ.
  const int weight_pitch = w.chunks * static_cast<int>(gpu::weights_per_chunk(w.format));
  gpu::call_library(stream, [=, library = library_.get()](void* native_stream) {
    const float alpha = 1, beta = add ? 1 : 0;
    check(library->set_stream(library->handle, native_stream), "cublasSetStream");
    check(library->gemm(library->handle, transpose, no_transpose, w.rows, rows, w.cols, &alpha, w.data,
                        real_16bf, weight_pitch, x.data, real_16bf, x.pitch, &beta, out, real_32f, w.rows,
                        compute_32f, default_algorithm),
          "cublasGemmEx");
  });
}

}  // namespace fs::cuda::FS_GPU_BUILD

// The prefill's products through cuBLAS, which a library of ours stands in for, and without it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend_checks.h"
#include "base/error.h"
#include "cuda/backend.h"
#include "cuda/blas.h"
#include "model/quantize.h"
#include "synthetic_model.h"

namespace fs::cuda::emulated {
namespace {

using testing::some_tokens;
using testing::synthetic_weights;
using testing::TapLog;
using testing::taps_of;

class CudaBlas : public ::testing::Test {
 protected:
  CudaBlas() : stub_(dlopen(FS_CUBLAS_STUB, RTLD_NOW)) { calls(); }
  ~CudaBlas() override {
    fail(0, 0);
    dlclose(stub_);
  }
  /// Of the stub, since the last time.
  std::string calls() const { return reinterpret_cast<const char* (*)()>(dlsym(stub_, "fs_stub_calls"))(); }
  void fail(int create, int gemm) const {
    reinterpret_cast<void (*)(int, int)>(dlsym(stub_, "fs_stub_fail"))(create, gemm);
  }
  static std::size_t gemms(const std::string& text) {
    std::size_t count = 0;
    for (std::size_t at = text.find("gemm"); at != std::string::npos; at = text.find("gemm", at + 1)) ++count;
    return count;
  }
  static TapLog prefill(const model::Weights& weights, const Options& options, std::size_t rows = 17) {
    const model::Config c = config();
    const auto backend = make_backend(c, weights, options);
    return taps_of(*backend, {}, some_tokens(rows, c.vocab_size));
  }
  static model::Config config() { return model::synthetic_config("tiny-odd"); }
  static Options fast(std::vector<std::string> cublas) {
    Options options;
    options.fast = true;
    options.cublas = std::move(cublas);
    return options;
  }

  void* stub_;
};

TEST_F(CudaBlas, IsNotNeeded) {
  std::string reason;
  EXPECT_EQ(Blas::open({"libfs-is-not-there.so.1"}, reason), nullptr);
  EXPECT_EQ(reason, "no library of that name");
  EXPECT_EQ(Blas::open({"libm.so.6"}, reason), nullptr);
  EXPECT_EQ(reason, "libm.so.6 lacks functions");
  EXPECT_TRUE(cublas_names().empty());  // the emulator's memory is not the real one's
  const model::Weights weights = synthetic_weights(config());
  const TapLog without = prefill(weights, fast({})),
               missing = prefill(weights, fast({"libfs-is-not-there.so.1"}));
  for (std::size_t i = 0; i < without.entries.size(); ++i) {
    EXPECT_EQ(without.entries[i].values, missing.entries[i].values);
  }
}

TEST_F(CudaBlas, TakesTheProductsOfAFastPrefillWithBf16Weights) {
  const model::Config c = config();
  const model::Weights weights = synthetic_weights(c);
  const TapLog own = prefill(weights, fast({}));
  EXPECT_EQ(calls(), "");
  const TapLog with = prefill(weights, fast({"libfs-is-not-there.so.1", FS_CUBLAS_STUB}));
  const std::string made = calls();
  EXPECT_TRUE(made.starts_with("create gemm(1,0 ")) << made;
  EXPECT_TRUE(made.ends_with("destroy ")) << made;
  EXPECT_EQ(gemms(made), 5 * c.n_layers + 1) << made;  // qkv, o, gate, up, down; the head of all rows
  const auto pitch = [](std::size_t cols) { return (cols + 31) / 32 * 32; };
  EXPECT_NE(
      made.find(fmt::format("gemm(1,0 m={} n=17 k={} lda={} ldb={} ldc={} beta=1)", c.hidden, c.intermediate,
                            (c.intermediate + 7) / 8 * 8, pitch(c.intermediate), c.hidden)),
      std::string::npos)
      << made;
  // The first products are of the same rounded inputs, and summed in fp32; behind them, a value on the edge
  // of rounding may fall to either side.
  ASSERT_EQ(with.entries.size(), own.entries.size());
  for (std::size_t i = 0; i < 5; ++i) {  // embed, attn_norm, q, k, v
    testing::expect_close(with.entries[i].values, own.entries[i].values, own.entries[i].key);
  }
  for (std::size_t i = 0; i < own.entries.size(); ++i) {
    double squares = 0, differences = 0;
    for (std::size_t j = 0; j < own.entries[i].values.size(); ++j) {
      const double want = own.entries[i].values[j];
      squares += want * want;
      differences += (with.entries[i].values[j] - want) * (with.entries[i].values[j] - want);
    }
    EXPECT_LE(differences, 1e-4 * squares) << own.entries[i].key;
  }
}

TEST_F(CudaBlas, IsNotAskedForWhatItCannotDo) {
  const model::Config c = config();
  const model::Weights weights = synthetic_weights(c);
  Options exact = fast({FS_CUBLAS_STUB});
  exact.fast = false;  // its sums drift: see linear_tensor.cu
  prefill(weights, exact, 5);
  EXPECT_EQ(calls(), "");
  ThreadPool pool(2);
  prefill(model::quantize(c, weights, model::Dtype::q8_0, pool), fast({FS_CUBLAS_STUB}), 5);
  EXPECT_EQ(calls(), "create destroy ");
}

TEST_F(CudaBlas, FailsByNameAndStartsOnlyWhereItCan) {
  const model::Weights weights = synthetic_weights(config());
  fail(0, 13);
  try {
    prefill(weights, fast({FS_CUBLAS_STUB}), 5);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::device);
    EXPECT_STREQ(error.what(), "cuBLAS: cublasGemmEx failed with status 13");
  }
  fail(1, 0);
  calls();
  std::string reason;
  EXPECT_EQ(Blas::open({FS_CUBLAS_STUB}, reason), nullptr);
  EXPECT_EQ(reason, FS_CUBLAS_STUB ": cublasCreate failed with status 1");
  prefill(weights, fast({FS_CUBLAS_STUB}), 5);  // our own kernel
  EXPECT_EQ(gemms(calls()), 0U);
}

}  // namespace
}  // namespace fs::cuda::emulated

// Cards that are not there, too old, too small or at fault: the emulator stands in for them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/run.h"
#include "cuda/backend.h"
#include "cuda/memory_plan.h"
#include "emulator/stand_in.h"
#include "engine/backend.h"
#include "engine/session.h"
#include "model/synthetic.h"
#include "runtime.h"
#include "synthetic_model.h"

namespace fs::cuda::emulated {
namespace {

using gpu::emulator::stand_in;
using gpu::emulator::StandIn;
using testing::some_tokens;
using testing::synthetic_weights;

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

class CudaDevices : public ::testing::Test {
 protected:
  ~CudaDevices() override {
    stand_in() = {};
    gpu::select_device(0);
  }

  static std::unique_ptr<engine::Backend> make(engine::BackendOptions options) {
    options.name = "cuda-emulated";
    return engine::make_backend(options, config(), synthetic_weights(config()));
  }
  static model::Config config() { return model::synthetic_config("tiny-odd"); }

  struct Outcome {
    int code;
    std::string out, err;
  };
  static Outcome fs(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "fs");
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = cli::run(static_cast<int>(arguments.size()), arguments.data());
    return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
  }
  template <class Body>
  static std::string error_of(Body body, ExitCode code = ExitCode::device) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "no error";
  }
};

TEST_F(CudaDevices, AreListedWithWhatTheyAre) {
  stand_in().cards = {{"Large", 9, 0, std::size_t{3} << 30U}, {"Old", 6, 1, std::size_t{1} << 30U}};
  const Outcome table = fs({"devices", "--backend", "cuda-emulated"});
  EXPECT_EQ(table.code, 0);
  EXPECT_EQ(table.out,
            "DEVICE  NAME   CAPABILITY      MEMORY\n"
            "     0  Large         9.0     3.0 GiB  usable\n"
            "     1  Old           6.1     1.0 GiB  compute capability 6.1, the CUDA backend needs 7.5\n");
  const Outcome json = fs({"devices", "--backend", "cuda-emulated", "--json"});
  EXPECT_EQ(json.code, 0);
  EXPECT_EQ(
      json.out,
      "{\"devices\":[{\"device\":0,\"name\":\"Large\",\"compute_capability\":\"9.0\",\"memory\":3221225472,"
      "\"usable\":true},{\"device\":1,\"name\":\"Old\",\"compute_capability\":\"6.1\",\"memory\":1073741824,"
      "\"usable\":false,\"because\":\"compute capability 6.1, the CUDA backend needs 7.5\"}]}\n");
}

TEST_F(CudaDevices, WithoutADriverAreOneLine) {
  stand_in() = {{}, "no driver", ""};
  const Outcome table = fs({"devices", "--backend", "cuda-emulated"});
  EXPECT_EQ(table.code, 0);
  EXPECT_EQ(table.out, "no CUDA device: no driver\n");
  EXPECT_EQ(fs({"devices", "--backend", "cuda-emulated", "--json"}).out,
            "{\"devices\":[],\"because\":\"no driver\"}\n");
  EXPECT_EQ(error_of([] { make({}); }), "no CUDA device: no driver");
}

TEST_F(CudaDevices, AreChosenByNumber) {
  stand_in().cards = {
      {"Old", 6, 1, 64 * mebibyte}, {"Small", 8, 6, mebibyte / 2}, {"Right", 7, 5, 64 * mebibyte}};
  EXPECT_EQ(make({.device = 2})->name(), "cuda-emulated");
  EXPECT_EQ(error_of([] { make({.device = 3}); }), "--device 3: there are 0 to 2 (fs devices lists them)");
  EXPECT_NE(error_of([] { make({}); }).find("Old: compute capability 6.1"), std::string::npos);
  EXPECT_NE(error_of([] { make({.device = 1}); }).find("Small: weights 1 MiB"), std::string::npos);
  EXPECT_EQ(fs({"logits", "-q", "--model", "synthetic:tiny-odd", "--tokens", "1", "--backend",
                "cuda-emulated", "--device", "7"})
                .code,
            4);
  EXPECT_EQ(error_of([] { engine::check_options({.name = "cpu", .device = 0}); }, ExitCode::usage),
            "--device 0: not for backend cpu, only for cuda and cuda-emulated");
  EXPECT_NE(error_of([] { engine::check_options({.name = "reference", .sync = true}); }, ExitCode::usage),
            "no error");
  EXPECT_EQ(error_of([] { engine::check_options({.name = "cpu", .step = "persistent"}); }, ExitCode::usage),
            "--step persistent: not for backend cpu, only for cuda and cuda-emulated");
  EXPECT_EQ(error_of([] { engine::check_options({.name = "cuda", .step = "loop"}); }, ExitCode::usage),
            "--step loop: unknown; there are graph and persistent");
}

/// Takes as much memory as it says before, and never more than there is.
TEST_F(CudaDevices, SayWhatMemoryIsTaken) {
  const std::size_t before = gpu::free_memory();
  std::string said;
  engine::BackendOptions options;
  options.notice = [&](const std::string& text) { said = text; };
  options.context = 400;
  options.prefill_chunk = 20;
  const auto backend = make(options);
  engine::Session session(*backend, 400);
  session.forward(some_tokens(20, config().vocab_size));
  const std::size_t taken = before - gpu::free_memory();
  const model::Config c = config();
  const std::size_t pitch = (c.head_dim + 7) / 8 * 8,
                    position = 4 * (2 * c.n_layers * c.n_kv_heads * pitch + c.head_dim);
  EXPECT_EQ(
      said,
      fmt::format("emulated device (device 0): weights 1 MiB, keys and values {:.1f} KiB a token (1 MiB at "
                  "--ctx 400), scratch 1 MiB; 65536 MiB are free",
                  static_cast<double>(position) / 1024));
  stand_in().cards[0].memory = 0;
  const std::string plan = error_of([&] { make(options); });
  EXPECT_NE(plan.find("0 MiB are free: take --backend cpu, or smaller weights (--dtype q8_0)"),
            std::string::npos)
      << plan;
  stand_in() = {};
  Options counted_for;
  counted_for.prefill_chunk = 20;
  const MemoryPlan counted = memory_plan(c, synthetic_weights(c), counted_for);
  const std::size_t logits = 20 * c.vocab_size * sizeof(float);  // of all rows, which nobody has asked for
  EXPECT_EQ(taken + logits, counted.weights + counted.scratch + 256 * position);  // 256 positions so far
}

TEST_F(CudaDevices, RefuseAContextThatDoesNotFitAndSayWhichDoes) {
  // The card that weights, scratch and 300 positions leave nothing of.
  const auto fits = [](std::size_t memory, std::size_t context) {
    stand_in().cards[0].memory = memory;
    try {
      make({.context = context, .prefill_chunk = 64});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  std::size_t low = 0, high = 64 * mebibyte;
  while (low + 100 < high) (fits((low + high) / 2, 300) ? high : low) = (low + high) / 2;
  EXPECT_FALSE(fits(high, 301));
  const std::string error = error_of([&] { make({.context = 301, .prefill_chunk = 64}); });
  EXPECT_TRUE(error.ends_with(": --ctx 300 fits")) << error;
  EXPECT_NE(error.find("at --ctx 301"), std::string::npos) << error;
  // And it is no empty promise: all of it can be filled, as there is no room to grow in steps.
  {
    const auto backend = make({.context = 300, .prefill_chunk = 64});
    engine::Session session(*backend, 300);
    session.forward(some_tokens(299, config().vocab_size));
    session.forward(some_tokens(1, config().vocab_size));
    EXPECT_NE(error_of([&] { engine::Session second(*backend, 300); }), "no error");
  }
  // Half-precision keys and values take half of it.
  EXPECT_FALSE(fits(high, 560));
  EXPECT_NO_THROW(make({.kv = "f16", .context = 560, .prefill_chunk = 64}));
}

TEST_F(CudaDevices, RunOutOfMemoryInTheMiddleOfAContextNobodyAskedFor) {
  const auto backend = make({.prefill_chunk = 64});
  engine::Session session(*backend, 4000);
  session.forward(some_tokens(256, config().vocab_size));
  stand_in().cards[0].memory -= gpu::free_memory() - 1000;
  const std::string error = error_of([&] { session.forward(some_tokens(1, config().vocab_size)); });
  EXPECT_NE(error.find("no device memory for the keys and values of 257 tokens"), std::string::npos) << error;
  EXPECT_NE(error.find(": 256 tokens fit"), std::string::npos) << error;
}

TEST_F(CudaDevices, RunOutOfMemoryNamingTheCommandsOwnFlags) {
  Options options;
  options.prefill_chunk = 16;
  const MemoryPlan plan = memory_plan(config(), synthetic_weights(config()), options);
  stand_in().cards[0].memory = plan.weights + plan.scratch + 100 * plan.position;
  const auto error = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.end(), {"-q", "--model", "synthetic:tiny-odd", "--backend", "cuda-emulated",
                                       "--prefill-chunk", "16"});
    const Outcome outcome = fs(arguments);
    EXPECT_EQ(outcome.code, 4) << outcome.out;
    return outcome.err;
  };
  std::string tokens = "1";
  for (int i = 0; i < 200; ++i) tokens += ",1";
  EXPECT_TRUE(error({"bench", "-p", "200", "-n", "0", "-r", "1"})
                  .ends_with(" tokens fit; use a smaller model or lower -p, -n, -d or -np\n"));
  EXPECT_TRUE(error({"logits", "--tokens", tokens.c_str()})
                  .ends_with(" tokens fit; use a smaller model, context (--ctx) or prompt\n"));
}

TEST_F(CudaDevices, NameTheKernelThatFailsWhereTheyWaitForEach) {
  stand_in().failing_kernel = "swiglu";
  const auto run = [](bool sync) {
    const auto backend = make({.sync = sync});
    engine::Session session(*backend, 10);
    session.forward(some_tokens(1, config().vocab_size));
  };
  EXPECT_EQ(error_of([&] { run(false); }),
            "CUDA: cudaStreamSynchronize: an illegal memory access was encountered");
  EXPECT_EQ(error_of([&] { run(true); }), "CUDA: swiglu: an illegal memory access was encountered");
  stand_in() = {};
  const auto eager = make({.sync = true}), recorded = make({});
  engine::Session a(*eager, 10), b(*recorded, 10);
  for (const TokenId token : some_tokens(3, config().vocab_size)) {
    const auto x = a.forward(std::span(&token, 1)), y = b.forward(std::span(&token, 1));
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end()));
  }
  const engine::Sampler greedy({}, config().vocab_size);
  const TokenId last = 3;
  EXPECT_EQ(a.next(std::span(&last, 1), greedy, {4, {}}).id, b.next(std::span(&last, 1), greedy, {4, {}}).id);
}

}  // namespace
}  // namespace fs::cuda::emulated

#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/backend.h"
#include "cuda/backend.h"
#include "engine/backend.h"
#include "reference/backend.h"

namespace fs::engine {

namespace {

model::Dtype kv_dtype(std::string_view kv) {
  if (kv == "f32") return model::Dtype::f32;
  if (kv == "f16") return model::Dtype::f16;
  if (kv == "bf16") return model::Dtype::bf16;
  fail(ExitCode::usage, "--kv {}: unknown; there are f32, f16 and bf16", kv);
}

cpu::Activations activations(std::string_view act) {
  if (act == "f32") return cpu::Activations::f32;
  if (act == "bf16") return cpu::Activations::bf16;
  if (act == "int8") return cpu::Activations::int8;
  fail(ExitCode::usage, "--act {}: unknown; there are f32, bf16 and int8", act);
}

/// Refuses what only other backends have.
void check_formats(std::string_view backend, const BackendOptions& options) {
  if (backend == "cpu") return;
  if (options.kv != "f32" && backend == "reference") {
    fail(ExitCode::usage, "--kv {}: backend reference has f32 only; cpu and cuda have f32, f16 and bf16",
         options.kv);
  }
  if (options.act == "int8" || (options.act == "bf16" && backend == "reference")) {
    fail(ExitCode::usage, "--act {}: backend {} has {}; --backend cpu has f32, bf16 and int8", options.act,
         backend, backend == "reference" ? "f32 only" : "f32 and bf16");
  }
}

#if FS_HAS_CUDA || FS_HAS_CUDA_EMULATED
cuda::Options cuda_options(const BackendOptions& options) {
  cuda::Options made;
  made.device = options.device.value_or(0);
  made.kv = kv_dtype(options.kv);
  made.fast = options.act == "bf16";
  made.prefill_chunk = options.prefill_chunk.value_or(made.prefill_chunk);
  made.context = options.context;
  made.sync = options.sync;
  made.notice = options.notice;
  return made;
}
#endif

}  // namespace

void check_options(const BackendOptions& options) {
  kv_dtype(options.kv);
  activations(options.act);
  if (options.name == "cpu" || options.name == "reference") {
    if (options.device)
      fail(ExitCode::usage, "--device {}: backend {} has none; --backend cuda has", *options.device,
           options.name);
    if (options.sync)
      fail(ExitCode::usage, "--sync: for the kernels of --backend cuda, not of {}", options.name);
  }
  if (options.name != "auto") check_formats(options.name, options);
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options, const model::Config& config,
                                      model::Weights weights) {
  check_options(options);
  const std::size_t threads = options.threads == 0 ? available_processors() : options.threads;
  bool on_cpu = options.name == "cpu";
  if (options.name == "auto") {
    on_cpu = true;
#if !FS_HAS_CUDA
    if (options.device)
      fail(ExitCode::device, "--device {}: this build has no CUDA backend; configure it with FS_CUDA=ON",
           *options.device);
#else
    try {
      auto backend = cuda::device::make_backend(config, weights, cuda_options(options));
      check_formats(backend->name(), options);
      return backend;
    } catch (const Error& error) {
      if (options.device) throw;
      if (options.notice) options.notice(std::string(error.what()) + "; the CPU computes instead");
    }
#endif
  }
  if (on_cpu) {
    cpu::Options made{threads, options.isa, kv_dtype(options.kv), activations(options.act)};
    made.prefill_chunk = options.prefill_chunk.value_or(made.prefill_chunk);
    return cpu::make_backend(config, std::move(weights), made);
  }
  if (options.name == "reference") {
    return reference::make_backend(config, std::move(weights), threads, options.prefill_chunk);
  }
  if (options.name == "cuda") {
#if FS_HAS_CUDA
    return cuda::device::make_backend(config, std::move(weights), cuda_options(options));
#else
    fail(ExitCode::device,
         "--backend cuda: this build has none; configure it with FS_CUDA=ON, or use --backend cpu");
#endif
  }
  if (options.name == "cuda-emulated") {
#if FS_HAS_CUDA_EMULATED
    return cuda::emulated::make_backend(config, std::move(weights), cuda_options(options));
#else
    fail(ExitCode::device,
         "--backend cuda-emulated: this build has none; configure it with FS_CUDA_EMULATED=ON");
#endif
  }
  fail(ExitCode::usage, "--backend {}: unknown; there are auto, cuda, cpu, reference and cuda-emulated",
       options.name);
}

}  // namespace fs::engine

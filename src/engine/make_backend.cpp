#include "base/error.h"
#include "base/thread_pool.h"
#include "cpu/backend.h"
#include "cpu/isa.h"
#include "cuda/backend.h"
#include "engine/backend.h"
#include "engine/backend_flags.h"
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

bool persistent(std::string_view step) {
  if (step == "graph") return false;
  if (step == "persistent") return true;
  fail(ExitCode::usage, "--step {}: unknown; there are graph and persistent", step);
}

/// Says which flags the backend that auto chose does not have.
void note_without_effect(std::string_view backend, const BackendOptions& options) {
  if (!options.notice) return;
  for (const BackendFlag& flag : flags_without_effect(backend, options)) {
    options.notice(why_without_effect(backend, flag) + "; auto chose " + std::string(backend));
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
  made.persistent = persistent(options.step);
  made.sync = options.sync;
  made.notice = options.notice;
  return made;
}
#endif

}  // namespace

void check_options(const BackendOptions& options) {
  kv_dtype(options.kv);
  activations(options.act);
  persistent(options.step);
  const bool chosen = options.name == "auto", on_card = chosen && options.device;
  for (const BackendFlag& flag : flags_without_effect(on_card ? "cuda" : options.name, options)) {
    if (!chosen || (on_card && flag.decides))
      throw Error(ExitCode::usage, why_without_effect(on_card ? "cuda" : options.name, flag));
  }
  if (chosen || options.name == "cpu") cpu::choose_kernels(options.isa);
}

void check_model(const BackendOptions& options, const model::Config& config) {
  if (options.name == "cuda" || (options.name == "auto" && options.device)) {
#if FS_HAS_CUDA
    cuda::device::usable_device(config, cuda_options(options));
#else
    static_cast<void>(config);
    if (options.device) {
      fail(ExitCode::device, "--device {}: this build has no CUDA backend; configure it with FS_CUDA=ON",
           *options.device);
    }
    fail(ExitCode::device,
         "--backend cuda: this build has none; configure it with FS_CUDA=ON, or use --backend cpu");
#endif
  }
  if (options.name == "cuda-emulated") {
#if FS_HAS_CUDA_EMULATED
    cuda::emulated::usable_device(config, cuda_options(options));
#else
    fail(ExitCode::device,
         "--backend cuda-emulated: this build has none; configure it with FS_CUDA_EMULATED=ON");
#endif
  }
}

void check_weight(const BackendOptions& options, std::string_view name, std::string_view dtype) {
  cpu::check_activations(activations(options.act), name, dtype);
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options, const model::Config& config,
                                      model::Weights weights) {
  check_options(options);
  check_model(options, config);
  const std::size_t threads = options.threads == 0 ? available_processors() : options.threads;
  if (options.name == "auto") {
#if FS_HAS_CUDA
    try {
      for (const BackendFlag& flag : flags_without_effect("cuda", options)) {
        if (flag.decides) throw Error(ExitCode::usage, why_without_effect("cuda", flag));
      }
      auto backend = cuda::device::make_backend(config, weights, cuda_options(options));
      note_without_effect(backend->name(), options);
      return backend;
    } catch (const Error& error) {
      if (options.device) throw;
      if (options.notice) options.notice(std::string(error.what()) + "; the CPU computes instead");
    }
#endif
    note_without_effect("cpu", options);
  }
  if (options.name == "auto" || options.name == "cpu") {
    cpu::Options made{threads, options.isa, kv_dtype(options.kv), activations(options.act)};
    made.prefill_chunk = options.prefill_chunk.value_or(made.prefill_chunk);
    return cpu::make_backend(config, std::move(weights), made);
  }
  if (options.name == "reference") {
    return reference::make_backend(config, std::move(weights), threads, options.prefill_chunk);
  }
#if FS_HAS_CUDA
  if (options.name == "cuda") {
    return cuda::device::make_backend(config, std::move(weights), cuda_options(options));
  }
#endif
#if FS_HAS_CUDA_EMULATED
  if (options.name == "cuda-emulated") {
    return cuda::emulated::make_backend(config, std::move(weights), cuda_options(options));
  }
#endif
  fail(ExitCode::usage, "--backend {}: unknown; there are auto, cuda, cpu, reference and cuda-emulated",
       options.name);
}

}  // namespace fs::engine

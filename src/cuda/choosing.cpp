#include <algorithm>
#include <optional>
#include <span>

#include "cuda/cuda.h"

namespace fs::cuda::FS_GPU_BUILD {
namespace {

/// What the device is told of a sampler; nothing for one that only the host can follow: with penalties, or a
/// draw from more than a few candidates.
std::optional<gpu::Sampling> sampling_of(const engine::Sampler& sampler, std::span<const TokenId> stop_ids) {
  const engine::SamplerOptions& options = sampler.options();
  const std::size_t top_k = std::min(options.top_k, sampler.n_ids());
  const bool draws = options.temperature > 0;
  if (options.repetition_penalty != 1 || options.presence_penalty != 0) return std::nullopt;
  if (draws && (top_k == 0 || top_k > gpu::most_top_k)) return std::nullopt;
  if (stop_ids.size() > gpu::most_stop_ids) return std::nullopt;
  gpu::Sampling result{options.temperature,
                       draws ? static_cast<int>(top_k) : 1,
                       options.top_p,
                       options.min_p,
                       options.seed,
                       static_cast<int>(sampler.n_ids()),
                       static_cast<int>(stop_ids.size()),
                       {}};
  std::copy(stop_ids.begin(), stop_ids.end(), result.stop_ids);
  return result;
}

}  // namespace

void Cuda::set_state(TokenId token, std::size_t position, const gpu::Sampling& sampling) const {
  int* const state = state_.host_state.data();
  state[gpu::state_token] = static_cast<int>(token);
  state[gpu::state_position] = static_cast<int>(position);
  state[gpu::state_chosen] = state[gpu::state_stopped] = 0;
  *state_.host_sampling.data() = sampling;
  gpu::copy_to_device(state_.state.data(), state, state_.state.bytes(), stream_);
  gpu::copy_to_device(state_.sampling.data(), state_.host_sampling.data(), state_.sampling.bytes(), stream_);
}

/// Steps that choose the next one's token themselves: queued at once, waited for once.
std::size_t Cuda::continue_with(engine::KvCache& kv_cache, const engine::Continuation& wanted) const {
  auto& cache = static_cast<KvCache&>(kv_cache);
  const std::optional<gpu::Sampling> sampling = sampling_of(wanted.sampler, wanted.stop_ids);
  if (!sampling) return 0;
  const std::size_t steps = std::min(wanted.choices.size(), most_ahead);
  cache.grow(wanted.first_position + steps);
  set_state(wanted.token, wanted.first_position, *sampling);
  const auto step = [&] {
    decode_step(cache, Pass{});
    gpu::sample(stream_, state_.logits.data(), state_.head(),
                gpu::head_blocks(static_cast<int>(config_.vocab_size)), state_.sampling.data(),
                state_.state.data(), state_.chosen_ids.data(), state_.chosen_logs.data());
  };
  if (!stream_.waits() && !cache.choosing_step) {
    cache.choosing_step = std::make_unique<gpu::Graph>(stream_, step);
  }
  for (std::size_t i = 0; i < steps; ++i) {
    stream_.waits() ? step() : cache.choosing_step->launch(stream_);
  }
  gpu::copy_to_host(state_.host_state.data(), state_.state.data(), state_.state.bytes(), stream_);
  gpu::copy_to_host(state_.host_ids.data(), state_.chosen_ids.data(), state_.chosen_ids.bytes(), stream_);
  gpu::copy_to_host(state_.host_logs.data(), state_.chosen_logs.data(), state_.chosen_logs.bytes(), stream_);
  stream_.synchronize();
  const auto chosen = static_cast<std::size_t>(state_.host_state.data()[gpu::state_chosen]);
  for (std::size_t i = 0; i < chosen; ++i) {
    wanted.choices[i] = {static_cast<TokenId>(state_.host_ids.data()[i]), state_.host_logs.data()[i]};
  }
  return chosen;
}

}  // namespace fs::cuda::FS_GPU_BUILD

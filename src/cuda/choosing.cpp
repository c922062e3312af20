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
  int* const state = host_state_.data();
  state[gpu::state_token] = static_cast<int>(token);
  state[gpu::state_position] = static_cast<int>(position);
  state[gpu::state_chosen] = state[gpu::state_stopped] = 0;
  *host_sampling_.data() = sampling;
  gpu::copy_to_device(state_.data(), state, state_.bytes(), stream_);
  gpu::copy_to_device(sampling_.data(), host_sampling_.data(), sampling_.bytes(), stream_);
}

/// Steps that choose the next one's token themselves: queued at once, waited for once.
std::size_t Cuda::continue_with(engine::KvCache& kv_cache, const engine::Continuation& wanted) const {
  auto& cache = static_cast<KvCache&>(kv_cache);
  const std::optional<gpu::Sampling> sampling = sampling_of(wanted.sampler, wanted.stop_ids);
  if (!sampling) return 0;
  const std::size_t steps = std::min(wanted.choices.size(), most_ahead);
  cache.grow(wanted.first_position + steps);
  set_state(wanted.token, wanted.first_position, *sampling);
  if (!cache.choosing_step) {
    cache.choosing_step = std::make_unique<gpu::Graph>(stream_, [&] {
      decode_step(cache, Pass{});
      gpu::sample(stream_, logits_.data(), head_blocks(), static_cast<int>(blocks_of_head()),
                  sampling_.data(), state_.data(), chosen_ids_.data(), chosen_logs_.data());
    });
  }
  for (std::size_t i = 0; i < steps; ++i) cache.choosing_step->launch(stream_);
  gpu::copy_to_host(host_state_.data(), state_.data(), state_.bytes(), stream_);
  gpu::copy_to_host(host_ids_.data(), chosen_ids_.data(), chosen_ids_.bytes(), stream_);
  gpu::copy_to_host(host_logs_.data(), chosen_logs_.data(), chosen_logs_.bytes(), stream_);
  stream_.synchronize();
  const auto chosen = static_cast<std::size_t>(host_state_.data()[gpu::state_chosen]);
  for (std::size_t i = 0; i < chosen; ++i) {
    wanted.choices[i] = {static_cast<TokenId>(host_ids_.data()[i]), host_logs_.data()[i]};
  }
  return chosen;
}

}  // namespace fs::cuda::FS_GPU_BUILD

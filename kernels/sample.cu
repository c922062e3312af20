#include "better.h"
#include "gpu.h"
#include "kernels.h"

namespace fs::gpu {
inline namespace FS_GPU_BUILD {
namespace {

constexpr int sample_threads = 256, sample_warps = sample_threads / 32;
/// Logits that may tie with the k-th; beyond, the host chooses.
constexpr int most_candidates = 1024;

/// Floats in the order of unsigned integers; −0 and 0 are one.
FS_DEVICE std::uint32_t in_order(float value) {
  const std::uint32_t bits = as_bits(value + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// engine::draw(): 53 bits of splitmix64, by seed and position.
FS_DEVICE double random_at(std::uint64_t seed, int position) {
  std::uint64_t z = seed + (static_cast<std::uint64_t>(position) + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  z ^= z >> 31U;
  return static_cast<double>(z >> 11U) * 0x1p-53;
}

/// Sum over the block, the same in every thread. `parts`: [warps], not in use.
FS_DEVICE int block_count(int value, int* parts) {
  value = warp_add(value);
  sync_threads();
  if (lane_index() == 0) parts[warp_index()] = value;
  sync_threads();
  int sum = 0;
  for (int w = 0; w < sample_warps; ++w) sum += parts[w];
  return sum;
}

/// The largest t for which at least k of the blocks' best logits are t or more: no logit below is among the k
/// largest.
FS_DEVICE std::uint32_t threshold_of(const float* best_logit, int blocks, int k, int* parts) {
  std::uint32_t threshold = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const std::uint32_t trial = threshold | 1U << static_cast<unsigned>(bit);
    int count = 0;
    for (int b = thread_index(); b < blocks; b += sample_threads)
      count += in_order(best_logit[b]) >= trial ? 1 : 0;
    if (block_count(count, parts) >= k) threshold = trial;
  }
  return threshold;
}

/// What sampling needs of one logit.
struct Candidates {
  float logit[most_candidates];
  int id[most_candidates];
  double weight[most_candidates];
};

/// Sorts the first `count`, the most likely first, ties by id: a bitonic network over the next power of two.
FS_DEVICE void sort_candidates(Candidates& all, int count) {
  int size = 1;
  while (size < count) size *= 2;
  for (int i = count + thread_index(); i < size; i += sample_threads) {
    all.logit[i] = -infinity();
    all.id[i] = 0x7FFFFFFF;
  }
  sync_threads();
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (int i = thread_index(); i < size; i += sample_threads) {
        const int other = i ^ distance;
        if (other < i) continue;
        const bool first_is_best = better(all.logit[i], all.id[i], all.logit[other], all.id[other]);
        if (first_is_best == ((i & run) == 0)) continue;
        const float logit = all.logit[i];
        const int id = all.id[i];
        all.logit[i] = all.logit[other];
        all.id[i] = all.id[other];
        all.logit[other] = logit;
        all.id[other] = id;
      }
      sync_threads();
    }
  }
}

/// engine::Sampler's filters and draw over sorted candidates; which one is drawn.  By one thread.
FS_DEVICE int drawn(const Candidates& all, int count, int top_k, double top_p, double min_p, double random) {
  int kept = min(top_k, count);
  while (kept < count && all.logit[kept] == all.logit[kept - 1]) ++kept;  // what ties with the k-th stays
  double mass = 0;
  for (int i = 0; i < kept; ++i) mass += all.weight[i];
  if (min_p > 0) {
    while (kept > 1 && all.weight[kept - 1] < min_p) --kept;
  }
  const double enough = top_p * mass;
  if (min_p > 0 || top_p < 1) {
    const int most = kept;
    mass = all.weight[0];
    for (kept = 1; kept < most && (top_p >= 1 || mass < enough); ++kept) mass += all.weight[kept];
  }
  double cumulative = 0;
  int chosen = 0;
  for (int i = 0; i < kept && cumulative <= random * mass; ++i) {
    if (all.weight[i] == 0) break;  // the sum fell short by a rounding
    cumulative += all.weight[i];
    chosen = i;
  }
  return chosen;
}

/// One block chooses the next token from the logits and from what each block of the head has found in its
/// own.
FS_KERNEL(sample_threads)
sample_kernel(const float* logits, const float* best_logit, const int* best_id, const float* peak,
              const double* mass, int blocks, const Sampling* sampling, int* state, int* ids,
              double* log_probabilities) {
  FS_SHARED(float, warp_logit, [sample_warps]);
  FS_SHARED(int, warp_id, [sample_warps]);
  FS_SHARED(float, warp_peak, [sample_warps]);
  FS_SHARED(double, warp_mass, [sample_warps]);
  FS_SHARED(int, parts, [sample_warps]);
  FS_SHARED(int, found, [1]);
  FS_SHARED(Candidates, all, [1]);
  wait_for_previous_kernel();
  if (state[state_stopped] != 0) return;

  float best = -infinity(), top = -infinity();
  int id = 0x7FFFFFFF;
  for (int b = thread_index(); b < blocks; b += sample_threads) {
    if (better(best_logit[b], best_id[b], best, id)) {
      best = best_logit[b];
      id = best_id[b];
    }
    top = max(top, peak[b]);
  }
  best_of_lanes(best, id);
  top = lanes_max(top);
  if (lane_index() == 0) {
    warp_logit[warp_index()] = best;
    warp_id[warp_index()] = id;
    warp_peak[warp_index()] = top;
  }
  if (thread_index() == 0) found[0] = 0;
  sync_threads();
  for (int w = 0; w < sample_warps; ++w) {
    if (better(warp_logit[w], warp_id[w], best, id)) {
      best = warp_logit[w];
      id = warp_id[w];
    }
    top = max(top, warp_peak[w]);
  }
  double total = 0;
  for (int b = thread_index(); b < blocks; b += sample_threads) {
    total += mass[b] * exp(static_cast<double>(peak[b]) - static_cast<double>(top));
  }
  total = lanes_total(total);
  if (lane_index() == 0) warp_mass[warp_index()] = total;
  sync_threads();
  total = 0;
  for (int w = 0; w < sample_warps; ++w) total += warp_mass[w];
  const double log_sum =
      static_cast<double>(top) + log(total);  // of all exponentials; here few values are alive
  bool decided = total == total;              // a logit that is not finite has left NaN

  float logit = best;
  if (decided && sampling->temperature > 0) {
    const std::uint32_t threshold = threshold_of(best_logit, blocks, sampling->top_k, parts);
    for (int b = warp_index(); b < blocks; b += sample_warps) {
      if (in_order(best_logit[b]) < threshold) continue;
      for (int r = lane_index(); r < head_rows_per_block; r += 32) {
        const int candidate = b * head_rows_per_block + r;
        if (candidate >= sampling->n_ids || in_order(logits[candidate]) < threshold) continue;
        const int slot = atomic_add(found, 1);
        if (slot >= most_candidates) continue;
        all[0].logit[slot] = logits[candidate];
        all[0].id[slot] = candidate;
      }
    }
    sync_threads();
    const int count = atomic_add(found, 0);
    decided = count <= most_candidates;
    if (decided) {
      sort_candidates(all[0], count);
      for (int i = thread_index(); i < count; i += sample_threads) {
        all[0].weight[i] = exp((static_cast<double>(all[0].logit[i]) - static_cast<double>(best)) /
                               static_cast<double>(sampling->temperature));
      }
      sync_threads();
      if (thread_index() == 0) {
        const int rank = drawn(all[0], count, sampling->top_k, sampling->top_p, sampling->min_p,
                               random_at(sampling->seed, state[state_position] + 1));
        id = all[0].id[rank];
        logit = all[0].logit[rank];
      }
    }
  }
  if (thread_index() != 0) return;
  if (!decided) {
    state[state_stopped] = 1;
    return;
  }
  const int step = state[state_chosen];
  ids[step] = id;
  log_probabilities[step] = static_cast<double>(logit) - log_sum;
  state[state_chosen] = step + 1;
  state[state_token] = id;
  state[state_position] += 1;
  for (int i = 0; i < sampling->n_stop_ids; ++i) {
    if (sampling->stop_ids[i] == id) state[state_stopped] = 1;
  }
}

}  // namespace

void sample(Stream& stream, const float* logits, const HeadBlocks& found, int blocks,
            const Sampling* sampling, int* state, int* ids, double* log_probabilities) {
  launch(stream, {"sample", 1, 1, sample_threads}, sample_kernel, logits,
         static_cast<const float*>(found.best_logit), static_cast<const int*>(found.best_id),
         static_cast<const float*>(found.peak), static_cast<const double*>(found.mass), blocks, sampling,
         state, ids, log_probabilities);
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu

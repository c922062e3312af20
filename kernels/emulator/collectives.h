#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/scheduler.h"

/// Operations of the 32 lanes of a warp together, and barriers of a block.
namespace fs::gpu::emulator {

/// The payloads of the lanes of a mask, once all of them have arrived.
struct Lanes {
  std::array<void*, 32> payload;
  std::uint32_t mask;

  bool has(unsigned lane) const { return lane < 32 && (mask >> lane & 1U) != 0; }
  template <class Payload>
  Payload& of(unsigned lane) const {
    return *static_cast<Payload*>(payload[lane]);
  }
  template <class Payload, class Visit>
  void each(Visit visit) const {
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (has(lane)) visit(lane, of<Payload>(lane));
    }
  }
};

/// Waits until all lanes of `mask` are in the same operation with the same mask; the last one to come
/// performs it for all. Throws Fault if a lane of the mask cannot come, or the caller is not in it. Orders
/// memory only if `orders_memory`.
void warp_collective(WarpOperation operation, std::uint32_t mask, void* payload, Where where,
                     bool orders_memory = false);

struct ShufflePayload {
  std::uint64_t value = 0, result = 0;
  unsigned argument = 0, width = 32;
};
void shuffle_from(const Lanes& lanes);  ///< argument: the source lane
void shuffle_up(const Lanes& lanes);    ///< argument: the distance
void shuffle_down(const Lanes& lanes);
void shuffle_xor(const Lanes& lanes);  ///< argument: the lane mask

struct VotePayload {
  std::int64_t value = 0, result = 0;
};
void vote_ballot(const Lanes& lanes);
void vote_all(const Lanes& lanes);
void vote_any(const Lanes& lanes);
void reduce_add(const Lanes& lanes);
void reduce_min(const Lanes& lanes);
void reduce_max(const Lanes& lanes);
void match_any(const Lanes& lanes);
void only_wait(const Lanes& lanes);

/// Butterfly over groups of `width` lanes, in the order of the shuffles it stands for.
struct ButterflyPayload {
  float value = 0;
  unsigned width = 32;
};
void butterfly_sum(const Lanes& lanes);
void butterfly_max(const Lanes& lanes);

template <class T>
T shuffle(WarpOperation operation, std::uint32_t mask, T value, unsigned argument, unsigned width,
          Where where) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "CUDA shuffles no such type");
  ShufflePayload payload;
  std::memcpy(&payload.value, &value, sizeof value);
  payload.argument = argument;
  payload.width = width;
  warp_collective(operation, mask, &payload, where);
  std::memcpy(&value, &payload.result, sizeof value);
  return value;
}
inline std::int64_t vote(WarpOperation operation, std::uint32_t mask, std::int64_t value, Where where) {
  VotePayload payload{value, 0};
  warp_collective(operation, mask, &payload, where);
  return payload.result;
}

/// What a barrier tells each of its threads about the predicates of all.
struct Votes {
  int count = 0;
  bool all = true;
};
/// bar.sync: barrier `id` of the block. threads: how many take part, a multiple of 32; 0: the whole block.
/// All of them must come by the same line. Throws Fault where they do not.
Votes block_barrier(int id, int threads, bool predicate, Where where);

}  // namespace fs::gpu::emulator

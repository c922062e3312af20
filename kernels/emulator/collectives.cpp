#include "emulator/collectives.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fs::gpu::emulator {

void warp_collective(WarpOperation operation, std::uint32_t mask, void* payload, Where where,
                     bool orders_memory) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  if ((mask >> thread.lane & 1U) == 0) {
    fault("{}: lane {} is not in its own mask {:08x}", where.text(), thread.lane, mask);
  }
  if ((mask & ~warp.alive) != 0) {
    fault("{}: mask {:08x} names lanes that have ended or never were (alive: {:08x})", where.text(), mask,
          warp.alive);
  }
  thread.operation = operation;
  thread.payload = payload;
  thread.mask = mask;
  thread.where = where;
  warp.waiting |= 1U << thread.lane;
  Tag& tag = warp.tags[warp.phase & 1U];
  if (orders_memory) release(&tag);

  Thread* const lane0 = &thread.block->threads[thread.linear - thread.lane];
  Lanes lanes{{}, mask};
  bool complete = (warp.waiting & mask) == mask;
  for (unsigned lane = 0; complete && lane < 32; ++lane) {
    if (!lanes.has(lane)) continue;
    complete = lane0[lane].operation == operation && lane0[lane].mask == mask;
    lanes.payload[lane] = lane0[lane].payload;
  }
  if (complete) {
    operation(lanes);
    warp.waiting &= ~mask;
    if (orders_memory) ++warp.phase;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (lanes.has(lane) && lane != thread.lane) wake(lane0[lane]);
    }
  } else {
    wait_as(Thread::State::in_warp);
  }
  if (orders_memory) acquire(&tag);
}

namespace {

template <class Source>
void shuffle_by(const Lanes& lanes, Source source) {
  lanes.each<ShufflePayload>([&](unsigned lane, ShufflePayload& own) {
    if (own.width == 0 || own.width > 32 || (own.width & (own.width - 1)) != 0) {
      fault("a shuffle of width {}", own.width);
    }
    const unsigned first = lane / own.width * own.width;
    const unsigned from = source(lane, first, own);
    if (!lanes.has(from)) fault("a shuffle reads lane {}, which is not in the mask {:08x}", from, lanes.mask);
    own.result = lanes.of<ShufflePayload>(from).value;
  });
}

template <class Combine>
void vote_by(const Lanes& lanes, std::int64_t initial, Combine combine) {
  lanes.each<VotePayload>(
      [&](unsigned lane, const VotePayload& one) { initial = combine(initial, one.value, lane); });
  lanes.each<VotePayload>([&](unsigned, VotePayload& one) { one.result = initial; });
}

template <class Combine>
void butterfly_by(const Lanes& lanes, Combine combine) {
  if (lanes.mask != ~0U) fault("a warp-wide sum or maximum with mask {:08x}", lanes.mask);
  const unsigned width = lanes.of<ButterflyPayload>(0).width;
  std::array<float, 32> now, next;
  for (unsigned lane = 0; lane < 32; ++lane) now[lane] = lanes.of<ButterflyPayload>(lane).value;
  for (unsigned distance = width / 2; distance > 0; distance /= 2) {
    for (unsigned lane = 0; lane < 32; ++lane) next[lane] = combine(now[lane], now[lane ^ distance]);
    now = next;
  }
  for (unsigned lane = 0; lane < 32; ++lane) lanes.of<ButterflyPayload>(lane).value = now[lane];
}

}  // namespace

void shuffle_from(const Lanes& lanes) {
  shuffle_by(lanes, [](unsigned, unsigned first, const ShufflePayload& own) {
    return first + (own.argument & (own.width - 1));
  });
}
void shuffle_up(const Lanes& lanes) {
  shuffle_by(lanes, [](unsigned lane, unsigned first, const ShufflePayload& own) {
    return lane - first < own.argument ? lane : lane - own.argument;
  });
}
void shuffle_down(const Lanes& lanes) {
  shuffle_by(lanes, [](unsigned lane, unsigned first, const ShufflePayload& own) {
    return lane + own.argument >= first + own.width ? lane : lane + own.argument;
  });
}
void shuffle_xor(const Lanes& lanes) {
  shuffle_by(lanes, [](unsigned lane, unsigned first, const ShufflePayload& own) {
    const unsigned from = lane ^ own.argument;
    return from >= first + own.width ? lane : from;
  });
}

void vote_ballot(const Lanes& lanes) {
  vote_by(lanes, 0, [](std::int64_t bits, std::int64_t value, unsigned lane) {
    return bits | static_cast<std::int64_t>(value != 0) << lane;
  });
}
void vote_all(const Lanes& lanes) {
  vote_by(lanes, 1, [](std::int64_t all, std::int64_t value, unsigned) {
    return static_cast<std::int64_t>(all != 0 && value != 0);
  });
}
void vote_any(const Lanes& lanes) {
  vote_by(lanes, 0, [](std::int64_t any, std::int64_t value, unsigned) {
    return static_cast<std::int64_t>(any != 0 || value != 0);
  });
}
void reduce_add(const Lanes& lanes) {
  vote_by(lanes, 0, [](std::int64_t sum, std::int64_t value, unsigned) { return sum + value; });
}
void reduce_min(const Lanes& lanes) {
  vote_by(lanes, std::numeric_limits<std::int64_t>::max(),
          [](std::int64_t least, std::int64_t value, unsigned) { return std::min(least, value); });
}
void reduce_max(const Lanes& lanes) {
  vote_by(lanes, std::numeric_limits<std::int64_t>::min(),
          [](std::int64_t most, std::int64_t value, unsigned) { return std::max(most, value); });
}
void match_any(const Lanes& lanes) {
  lanes.each<VotePayload>([&](unsigned, VotePayload& own) {
    own.result = 0;
    lanes.each<VotePayload>([&](unsigned lane, const VotePayload& other) {
      if (other.value == own.value) own.result |= std::int64_t{1} << lane;
    });
  });
}
void only_wait(const Lanes&) {}

void butterfly_sum(const Lanes& lanes) {
  butterfly_by(lanes, [](float a, float b) { return a + b; });
}
void butterfly_max(const Lanes& lanes) {
  butterfly_by(lanes, [](float a, float b) { return std::fmax(a, b); });
}

namespace {

/// Lets the threads of a full barrier go.
void open_if_full(Block& block, int id) {
  Barrier& barrier = block.barriers[static_cast<std::size_t>(id)];
  const int needed = barrier.first->barrier_threads != 0 ? barrier.first->barrier_threads : block.alive;
  if (barrier.arrived < needed) return;
  const auto waits_here = [&](const Thread& thread) {
    return thread.state == Thread::State::at_barrier && thread.barrier == id;
  };
  int votes = 0;
  for (const Thread& thread : block.threads) votes += waits_here(thread) && thread.predicate;
  for (Thread& thread : block.threads) {
    if (!waits_here(thread)) continue;
    thread.votes = votes;
    wake(thread);
  }
  block.at_barriers -= barrier.arrived;
  barrier.arrived = 0;
  barrier.first = nullptr;
  ++barrier.phase;
}

}  // namespace

Votes block_barrier(int id, int threads, bool predicate, Where where) {
  Thread& thread = self();
  Block& block = *thread.block;
  const auto n_threads = static_cast<int>(block.threads.size());
  if (id < 0 || id >= barriers_per_block) fault("{}: barrier {} of {}", where.text(), id, barriers_per_block);
  if (threads % 32 != 0 || threads > n_threads) {
    fault("{}: a barrier of {} threads in a block of {}: whole warps are needed", where.text(), threads,
          n_threads);
  }
  for (unsigned lane = 0; thread.warp->waiting != 0 && lane < 32; ++lane) {
    if ((thread.warp->waiting >> lane & 1U) == 0) continue;
    const Thread& other = block.threads[thread.linear - thread.lane + lane];
    if ((other.mask >> thread.lane & 1U) == 0) continue;
    fault("{}: at a barrier while lane {} waits for this lane in a warp operation at {}", where.text(), lane,
          other.where.text());
  }
  if (threads == 0 && block.alive != n_threads) {
    fault("{}: a barrier of the whole block after {} of its threads have ended", where.text(),
          n_threads - block.alive);
  }
  Barrier& barrier = block.barriers[static_cast<std::size_t>(id)];
  if (barrier.arrived == 0) {
    barrier.first = &thread;
  } else if (barrier.first->where.line != where.line || barrier.first->barrier_threads != threads) {
    fault("threads of a block wait at different barriers: {} and {}", barrier.first->where.text(),
          where.text());
  }
  thread.barrier = id;
  thread.barrier_threads = threads;
  thread.predicate = predicate;
  thread.where = where;
  thread.mask = 0;
  ++barrier.arrived;
  ++block.at_barriers;
  Tag& tag = barrier.tags[barrier.phase & 1U];
  release(&tag);
  thread.state = Thread::State::at_barrier;
  open_if_full(block, id);
  wait_as(thread.state);
  acquire(&tag);
  const int needed = threads != 0 ? threads : n_threads;
  return {thread.votes, thread.votes == needed};
}

}  // namespace fs::gpu::emulator

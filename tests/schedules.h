#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "build.h"
#if defined(FS_EMULATED)
#include "emulator/scheduler.h"
#endif

/// The orders in which a test lets kernels run. A card has its own, once.
namespace fs::testing {

#if defined(FS_EMULATED)
struct NamedSchedule {
  std::string name;
  gpu::emulator::Schedule schedule;
};

inline std::vector<NamedSchedule> every_schedule() {
  using gpu::emulator::Order;
  std::vector<NamedSchedule> all = {{"fifo", {Order::fifo, 1, 1}},
                                    {"reverse", {Order::reverse, 1, 1}},
                                    {"lifo", {Order::lifo, 1, 1}},
                                    {"fifo, 3 blocks at once", {Order::fifo, 1, 3}},
                                    {"lifo, 3 blocks at once", {Order::lifo, 1, 3}}};
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    all.push_back({fmt::format("random {}", seed), {Order::random, seed, seed % 2 == 0 ? 1U : 3U}});
  }
  return all;
}

/// Sets a schedule and puts the default back.
class UnderSchedule {
 public:
  explicit UnderSchedule(const NamedSchedule& named) { gpu::emulator::schedule() = named.schedule; }
  ~UnderSchedule() { gpu::emulator::schedule() = {}; }
  UnderSchedule(const UnderSchedule&) = delete;
  UnderSchedule& operator=(const UnderSchedule&) = delete;
};
#else
struct NamedSchedule {
  std::string name;
};
inline std::vector<NamedSchedule> every_schedule() { return {{"the card's"}}; }
struct UnderSchedule {
  explicit UnderSchedule(const NamedSchedule&) {}
  ~UnderSchedule() {}
};
#endif

}  // namespace fs::testing

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "emulator_kernels.h"
#include "model/dtype.h"
#include "schedules.h"

namespace fs::gpu {
namespace {

using emulator::Fault;
using testing::every_schedule;
using testing::UnderSchedule;

/// Values on the device, NaN where none are given.
template <class T>
struct Device : DeviceArray<T> {
  explicit Device(std::size_t size) : DeviceArray<T>(size) {}
  Device(Stream& stream, const std::vector<T>& values) : DeviceArray<T>(values.size()) {
    copy_to_device(this->data(), values.data(), this->bytes(), stream);
  }
  std::vector<T> read(Stream& stream) const {
    std::vector<T> values(this->size());
    copy_to_host(values.data(), this->data(), this->bytes(), stream);
    stream.synchronize();
    return values;
  }
};

std::vector<float> counting(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 29) + 1;
  return values;
}

LaunchShape shape(const char* name, unsigned blocks, unsigned threads = block) {
  return {name, blocks, 1, threads, 0, false};
}

// Each of these runs a kernel and says whether the result is right.

template <int bug>
bool row_sum_is_right() {
  Stream stream;
  constexpr int rows = 5, n = 300;
  const auto x = counting(rows * n);
  const Device<float> dx(stream, x), dy(rows);
  launch(stream, shape("row_sum", rows), row_sum<bug>, dx.data(), dy.data(), n);
  const auto y = dy.read(stream);
  for (int row = 0; row < rows; ++row) {
    if (y[static_cast<std::size_t>(row)] !=
        std::accumulate(x.begin() + row * n, x.begin() + (row + 1) * n, 0.0F)) {
      return false;
    }
  }
  return true;
}

template <int bug>
bool reverse_runs_is_right() {
  Stream stream;
  const auto x = counting(2 * block);
  const Device<float> dx(stream, x), dy(x.size());
  launch(stream, shape("reverse_runs", 2), reverse_runs<bug>, dx.data(), dy.data());
  const auto y = dy.read(stream);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (y[i] != x[i / 32 * 32 + 31 - i % 32]) return false;
  }
  return true;
}

template <int bug>
bool staged_copy_is_right() {
  Stream stream;
  const auto x = counting(5 * 4 * block);
  const Device<float> dx(stream, x), dy(x.size());
  launch(stream, shape("staged_copy", 1), staged_copy<bug>, dx.data(), dy.data(), static_cast<int>(x.size()));
  const auto y = dy.read(stream);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (y[i] != x[i] + 1) return false;
  }
  return true;
}

template <int bug>
bool last_block_is_right() {
  Stream stream;
  constexpr unsigned blocks = 6;
  const Device<float> parts(blocks), total(1);
  const Device<unsigned> counter(stream, {0});
  for (int again = 0; again < 2; ++again) {
    clear(parts.data(), parts.bytes(), stream);
    clear(total.data(), total.bytes(), stream);
    launch(stream, shape("last_block", blocks), last_block<bug>, parts.data(), counter.data(), total.data());
    if (total.read(stream)[0] != blocks * (blocks + 1) / 2) return false;
  }
  return true;
}

template <int bug, bool cooperative = true>
bool normalise_is_right() {
  Stream stream;
  const auto x = counting(1000);
  const float sum = std::accumulate(x.begin(), x.end(), 0.0F);
  const Device<float> dx(stream, x), parts(3);
  LaunchShape how = shape("normalise", 3);
  how.cooperative = cooperative;
  launch(stream, how, normalise<bug>, dx.data(), parts.data(), 1000);
  const auto y = dx.read(stream);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(std::abs(y[i] * sum - x[i]) < 1e-3F)) return false;
  }
  return true;
}

/// In two launches; the counts wrap round in the first.
template <int bug, bool cooperative = true>
bool hand_round_is_right() {
  Stream stream;
  constexpr unsigned blocks = 4, rounds = 2, launches = 2;
  const std::vector<float> x = {10, 20, 30, 40};
  const Device<float> dx(stream, x), dy(blocks);
  const Device<unsigned> counts(stream, {0xFFFFFFFA, 0xFFFFFFFA});
  LaunchShape how = shape("hand_round", blocks);
  how.cooperative = cooperative;
  for (unsigned i = 0; i < launches; ++i) {
    launch(stream, how, hand_round<bug>, dx.data(), dy.data(), counts.data(), int{rounds});
  }
  const auto got = dx.read(stream);
  for (std::size_t i = 0; i < blocks; ++i) {
    if (got[i] != x[(i + rounds * launches) % blocks] + rounds * launches) return false;
  }
  return true;
}

template <int bug>
bool histogram_is_right() {
  Stream stream;
  std::vector<int> x(2000);
  std::vector<unsigned> want(64);
  for (std::size_t i = 0; i < x.size(); ++i)
    ++want[static_cast<std::size_t>(x[i] = static_cast<int>(i * i % 64))];
  const Device<int> dx(stream, x);
  const Device<unsigned> bins(stream, std::vector<unsigned>(64));
  launch(stream, shape("histogram", 4), histogram<bug>, dx.data(), 2000, bins.data());
  return bins.read(stream) == want;
}

template <int bug, unsigned threads = block>
bool copy_vectors_is_right() {
  Stream stream;
  const auto x = counting(4 * block + 4);
  const Device<float> dx(stream, x), dy(4 * block);
  launch(stream, shape("copy_vectors", 1, threads), copy_vectors<bug>, dx.data(), dy.data());
  return dy.read(stream) == std::vector<float>(x.begin(), x.end() - 4);
}

template <int bug>
bool tensor_product_is_right() {
  Stream stream;
  std::vector<Bf16> a(16 * 16), b(8 * 16);
  const auto fill = [](std::vector<Bf16>& to, std::size_t step) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i].bits = model::float_to_bf16(static_cast<float>(i * step % 17) - 8);
    }
  };
  fill(a, 5);
  fill(b, 7);
  const Device<Bf16> da(stream, a), db(stream, b);
  const Device<float> dd(16 * 8);
  launch(stream, shape("tensor_product", 1, 32), tensor_product<bug>, da.data(), db.data(), dd.data());
  const auto d = dd.read(stream);
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      float want = 0;
      for (std::size_t k = 0; k < 16; ++k) want += to_float(a[i * 16 + k]) * to_float(b[j * 16 + k]);
      if (d[i * 8 + j] != want) return false;
    }
  }
  return true;
}

template <int bug, bool nibbles>
bool block_dot_is_right() {
  Stream stream;
  constexpr std::size_t chunks = 22, per_chunk = nibbles ? 32 : 16, sharing = nibbles ? 1 : 2;
  std::vector<unsigned char> digits(16 * chunks + 64, 0);
  for (std::size_t i = 0; i < 16 * chunks; ++i) digits[i] = static_cast<unsigned char>(i * 37 + 11);
  std::vector<F16> factors(chunks / sharing);
  for (std::size_t i = 0; i < factors.size(); ++i)
    factors[i].bits = model::float_to_f16(static_cast<float>(i % 5) - 1.5F);
  const auto x = counting(chunks * per_chunk);
  double want = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int digit = nibbles ? (digits[i / 2] >> i % 2 * 4 & 15) - 8 : static_cast<std::int8_t>(digits[i]);
    want += double{model::f16_to_float(factors[i / per_chunk / sharing].bits)} * digit * x[i];
  }
  const Device<unsigned char> ddigits(stream, digits);
  const Device<F16> dfactors(stream, factors);
  const Device<float> dx(stream, x), dy(1);
  launch(stream, shape("block_dot", 1, 32), block_dot<bug, nibbles>, ddigits.data(), dfactors.data(),
         dx.data(), dy.data(), static_cast<int>(chunks));
  return std::abs(dy.read(stream)[0] - want) <= 1e-5 * std::abs(want);
}

template <int bug>
bool tile_products_is_right() {
  Stream stream;
  constexpr std::size_t tiles = 5;
  std::vector<Bf16> a(tiles * 256), b(tiles * 128);
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i].bits = model::float_to_bf16(static_cast<float>(i * 5 % 17) - 8);
  for (std::size_t i = 0; i < b.size(); ++i)
    b[i].bits = model::float_to_bf16(static_cast<float>(i * 7 % 19) - 9);
  const auto factors = counting(tiles);
  const Device<Bf16> da(stream, a), db(stream, b);
  const Device<float> dfactors(stream, factors), dd(16 * 8);
  launch(stream, shape("tile_products", 1, 32), tile_products<bug>, da.data(), db.data(), dfactors.data(),
         static_cast<int>(tiles), dd.data());
  const auto d = dd.read(stream);
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      float want = 0;
      for (std::size_t t = 0; t < tiles; ++t) {
        for (std::size_t k = 0; k < 16; ++k)
          want += factors[t] * to_float(a[256 * t + 16 * i + k]) * to_float(b[128 * t + 16 * j + k]);
      }
      if (d[i * 8 + j] != want) return false;
    }
  }
  return true;
}

template <int bug>
bool newest_row_is_right() {
  Stream stream;
  std::vector<float> x(block);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<float>(i) / 1000;
  const Device<float> dx(stream, x), total(1);
  const Device<Bf16> cache(6 * block);
  launch(stream, shape("newest_row", 1), newest_row<bug>, dx.data(), 2, cache.data(), total.data());
  const auto held = cache.read(stream);
  float want = 0;
  for (std::size_t i = 0; i < block; ++i) want += to_float(held[2 * block + i]);
  return std::abs(total.read(stream)[0] - want) < 1e-4F;
}

// Host code, right with bug 0.

template <int bug>
bool host_is_right() {
  Stream stream, other;
  constexpr std::size_t n = 2 * block;
  const PinnedArray<float> in(n), out(n);
  std::vector<float> x = counting(n);
  std::copy(x.begin(), x.end(), in.data());
  const Device<float> dx(n), dy(n);
  Event copied;
  copy_to_device(dx.data(), in.data(), dx.bytes(), stream);
  if (bug == 1) std::fill_n(in.data(), n, 0.0F);  // reused before the copy has happened
  copied.record(stream);
  Stream& worker = bug == 2 || bug == 3 ? other : stream;
  if (bug == 3) copied.hold_back(other);  // right: without it, bug 2
  const float* const from = bug == 4 ? in.data() : dx.data();
  launch(worker, shape("reverse_runs", 2), reverse_runs<0>, from, dy.data());
  copy_to_host(out.data(), bug == 5 ? dy.data() + 1 : dy.data(), out.bytes(), worker);
  if (bug != 6) worker.synchronize();
  if (bug == 7) return dy.data()[0] == x[31];
  if (bug == 8) copy_to_device(in.data(), dx.data(), dx.bytes(), stream);
  for (std::size_t i = 0; i < n; ++i) {
    if (out.data()[i] != x[i / 32 * 32 + 31 - i % 32]) return false;
  }
  return true;
}

template <int bug>
bool graph_is_right() {
  Stream stream;
  const std::vector<float> x = counting(block);
  const Device<float> dx(stream, x), dy(block);
  std::vector<float> y(block);
  const Graph graph(stream, [&] {
    launch(stream, shape("reverse_runs", 1), reverse_runs<0>, dx.data(), dy.data());
    if (bug == 1) copy_to_host(y.data(), dy.data(), dy.bytes(), stream);  // pageable
    if (bug == 2) stream.synchronize();
  });
  for (int again = 0; again < 3; ++again) {
    graph.launch(stream);
    copy_on_device(dx.data(), dy.data(), dx.bytes(), stream);
  }
  return dy.read(stream)[0] == x[31];
}

enum class Catches {
  always,   // a Fault, or a wrong result under one of the schedules
  address,  // as always; but AddressSanitizer, where it is on, ends the program first
  signal,   // the program ends
  race,     // only ThreadSanitizer sees it; it also sees many of the others first
};
struct Seeded {
  const char* name;
  Catches catches;
  bool (*run)();
};

const Seeded seeded[] = {
    {"reads one value past a row", Catches::address, row_sum_is_right<1>},
    {"a thread ends before a shuffle", Catches::always, row_sum_is_right<2>},
    {"half a warp in a whole-warp shuffle", Catches::always, row_sum_is_right<3>},
    {"a lane not in its own mask", Catches::always, row_sum_is_right<4>},
    {"a shuffle from a lane outside the mask", Catches::always, row_sum_is_right<5>},
    {"shared memory read before it is written", Catches::always, row_sum_is_right<6>},
    {"written behind a shared array", Catches::address, row_sum_is_right<7>},
    {"barriers in two branches", Catches::always, row_sum_is_right<8>},
    {"a warp that skips a barrier", Catches::always, row_sum_is_right<9>},
    {"a named barrier of one and a half warps", Catches::always, row_sum_is_right<10>},
    {"a named barrier with the wrong count", Catches::always, row_sum_is_right<11>},
    {"no barrier between writing and reading", Catches::always, row_sum_is_right<12>},
    {"written behind an array on the device", Catches::address, row_sum_is_right<13>},
    {"no sync_warp, as if lanes ran in step", Catches::always, reverse_runs_is_right<1>},
    {"a misaligned asynchronous copy", Catches::always, staged_copy_is_right<1>},
    {"an asynchronous copy never committed", Catches::always, staged_copy_is_right<2>},
    {"waits for one copy too few", Catches::always, staged_copy_is_right<3>},
    {"never waits for copies", Catches::always, staged_copy_is_right<4>},
    {"no barrier after waiting for copies", Catches::always, staged_copy_is_right<5>},
    {"loads into a stage still being read", Catches::always, staged_copy_is_right<6>},
    {"no fence before the counter", Catches::race, last_block_is_right<1>},
    {"a counter that is not atomic", Catches::race, last_block_is_right<2>},
    {"the wrong block takes itself for the last", Catches::always, last_block_is_right<3>},
    {"a counter that is not put back", Catches::always, last_block_is_right<4>},
    {"no grid barrier", Catches::always, normalise_is_right<1>},
    {"a grid barrier in an ordinary launch", Catches::always, normalise_is_right<0, false>},
    {"no barrier of our own between two stages", Catches::always, hand_round_is_right<1>},
    {"arrivals that the next launch does not know of", Catches::always, hand_round_is_right<2>},
    {"a barrier of our own among blocks that do not all run at once", Catches::always,
     hand_round_is_right<0, false>},
    {"counters in shared memory not cleared", Catches::always, histogram_is_right<1>},
    {"no barrier behind atomics", Catches::always, histogram_is_right<2>},
    {"blocks add without atomics", Catches::race, histogram_is_right<3>},
    {"a misaligned vector load", Catches::always, copy_vectors_is_right<1>},
    {"more static shared memory than there is", Catches::always, copy_vectors_is_right<2>},
    {"dynamic shared memory not asked for", Catches::always, copy_vectors_is_right<3>},
    {"more threads than a block can have", Catches::always, copy_vectors_is_right<0, 1056>},
    {"fragments in the wrong order", Catches::always, tensor_product_is_right<1>},
    {"a block's factor for its neighbour", Catches::always, block_dot_is_right<1, false>},
    {"signed digits taken as unsigned", Catches::always, block_dot_is_right<2, false>},
    {"factors handed round by the lanes with chunks only", Catches::always, block_dot_is_right<3, false>},
    {"blocks with their factors between them loaded as vectors", Catches::always,
     block_dot_is_right<4, false>},
    {"nibbles in the other order", Catches::always, block_dot_is_right<5, true>},
    {"nibbles without their offset", Catches::always, block_dot_is_right<6, true>},
    {"a tile's products on top of the last one's", Catches::always, tile_products_is_right<1>},
    {"one stage for the tile that is read and the next", Catches::always, tile_products_is_right<2>},
    {"the other stage", Catches::always, tile_products_is_right<3>},
    {"a tile not waited for", Catches::always, tile_products_is_right<4>},
    {"the first tile's factor for all", Catches::always, tile_products_is_right<5>},
    {"a misaligned row of a fragment", Catches::always, tile_products_is_right<6>},
    {"fragments transposed", Catches::always, tile_products_is_right<7>},
    {"the newest row not rounded as the cache's are", Catches::always, newest_row_is_right<1>},
    {"rows of the cache at the distance of another format", Catches::always, newest_row_is_right<2>},
    {"sums of warps read before they are there", Catches::always, newest_row_is_right<3>},
    {"a pinned buffer reused before the copy", Catches::always, host_is_right<1>},
    {"another stream without an event", Catches::always, host_is_right<2>},
    {"a host pointer given to a kernel", Catches::always, host_is_right<4>},
    {"a copy past the end", Catches::always, host_is_right<5>},
    {"the host reads without waiting", Catches::always, host_is_right<6>},
    {"the host reads device memory", Catches::signal, host_is_right<7>},
    {"a copy in the wrong direction", Catches::always, host_is_right<8>},
    {"pageable memory in a graph", Catches::always, graph_is_right<1>},
    {"waits while recording", Catches::always, graph_is_right<2>},
};

/// The first schedule under which the run fails, and how; empty if none.
std::string how_it_fails(const std::function<bool()>& run) {
  for (const auto& schedule : every_schedule()) {
    const UnderSchedule under(schedule);
    try {
      if (!run()) return schedule.name + ": a wrong result";
    } catch (const Fault& fault) {
      return schedule.name + ": " + fault.what();
    }
  }
  return "";
}

TEST(Emulator, RunsRightKernelsUnderEverySchedule) {
  for (const auto& run : {row_sum_is_right<0>, reverse_runs_is_right<0>, staged_copy_is_right<0>,
                          last_block_is_right<0>, normalise_is_right<0, true>, hand_round_is_right<0>,
                          histogram_is_right<0>, tensor_product_is_right<0>, block_dot_is_right<0, false>,
                          block_dot_is_right<0, true>, tile_products_is_right<0>, newest_row_is_right<0>,
                          copy_vectors_is_right<0>, host_is_right<0>, host_is_right<3>, graph_is_right<0>}) {
    EXPECT_EQ(how_it_fails(run), "");
  }
}

TEST(Emulator, CatchesEverySeededFault) {
  ::testing::FLAGS_gtest_death_test_style = "fast";
  std::string races;
  for (const Seeded& fault : seeded) {
    const bool dies = fault.catches == Catches::signal ||
                      (fault.catches == Catches::address && emulator::asan) || emulator::tsan;
    if (dies) {
      EXPECT_DEATH(
          {
            if (!how_it_fails(fault.run).empty()) std::abort();
            std::exit(0);  // a race that ThreadSanitizer has seen makes this a failure
          },
          "")
          << fault.name;
    } else if (fault.catches == Catches::race) {
      races += std::string("\n") + fault.name;
    } else {
      EXPECT_NE(how_it_fails(fault.run), "") << fault.name;
    }
  }
  if (!races.empty()) std::cout << "only a build with ThreadSanitizer catches:" << races << "\n";
}

TEST(Emulator, SaysWhatIsWrongAndWhere) {
  if (emulator::tsan) GTEST_SKIP() << "ThreadSanitizer reports the seeded races too";
  const auto says = [](bool (*run)(), const std::string& what) {
    const std::string found = how_it_fails(run);
    EXPECT_NE(found.find(what), std::string::npos) << found;
  };
  says(row_sum_is_right<4>, "row_sum: emulator_kernels.h:");
  says(row_sum_is_right<4>, "lane 16 is not in its own mask 0000ffff [block 0,0,0 thread 16]");
  says(row_sum_is_right<9>, "a barrier of the whole block after 1 of its threads have ended");
  says(row_sum_is_right<11>, "deadlock, 96 threads wait for others that never come");
  says(hand_round_is_right<0, false>,
       "hand_round: deadlock, 1 threads spin for a value that nobody will write");
  says(host_is_right<4>, "reverse_runs: argument 0 points to host memory");
  says(host_is_right<5>, "copy to the host: the source: 1024 bytes at");
}

TEST(Emulator, RefusesCooperativeGridsThatDoNotRunAtOnce) {
  Stream stream;
  const Device<float> x(1), y(1);
  const Device<unsigned> counts(2);
  LaunchShape how = shape("hand_round", 4 * 2048 / block + 1);
  how.cooperative = true;
  EXPECT_EQ(resident_blocks(how, hand_round<0>), 4U * 2048 / block);
  try {
    launch(stream, how, hand_round<0>, x.data(), y.data(), counts.data(), 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "CUDA: hand_round: too many blocks in cooperative launch");
  }
}

/// Pointers inside an argument are looked at too.
struct Bound {
  const float* x;
  template <class Visit>
  void each_pointer(Visit visit) const {
    visit(x);
  }
};
FS_KERNEL(block) read_bound(const Bound bound, float* y) { y[thread_index()] = bound.x[thread_index()]; }

TEST(Emulator, LooksAtPointersInsideArguments) {
  Stream stream;
  const Device<float> x(block), y(block);
  const std::vector<float> host(block);
  EXPECT_NO_THROW(launch(stream, shape("read_bound", 1), read_bound, Bound{x.data()}, y.data()));
  EXPECT_THROW(launch(stream, shape("read_bound", 1), read_bound, Bound{host.data()}, y.data()), Fault);
}

TEST(Emulator, GoesOnAfterAFault) {
  if (emulator::tsan) GTEST_SKIP() << "ThreadSanitizer reports the seeded races too";
  EXPECT_NE(how_it_fails(row_sum_is_right<9>), "");
  EXPECT_EQ(how_it_fails(row_sum_is_right<0>), "");
}

FS_KERNEL(32) collectives(int* out) {
  const int lane = lane_index();
  const float value = static_cast<float>(lane);
  int* const own = out + lane * 12;
  own[0] = shuffle(lane, 3);
  own[1] = shuffle(lane, 3, 8);
  own[2] = shuffle_up(lane, 2, 16);
  own[3] = shuffle_down(lane, 5);
  own[4] = shuffle_xor(lane, 9);
  own[5] = static_cast<int>(ballot(lane % 3 == 0));
  own[6] = (all_of_warp(lane < 32) ? 1 : 0) + (all_of_warp(lane < 31) ? 2 : 0) +
           (any_of_warp(lane == 7) ? 4 : 0) + (any_of_warp(lane == 99) ? 8 : 0);
  own[7] = warp_add(lane) * 10000 + warp_min(lane - 5) + warp_max(lane * 3);
  own[8] = static_cast<int>(lanes_sum(value)) * 1000 + static_cast<int>(lanes_max(value));
  own[9] = static_cast<int>(lanes_sum<8>(value)) * 1000 + static_cast<int>(lanes_max<4>(value));
  own[10] = dot_of_bytes(0x01FF7F80U, 0x02030405U, lane);
  own[11] =
      sync_threads_count(lane < 9) + (sync_threads_and(true) ? 100 : 0) + (sync_threads_or(false) ? 1000 : 0);
}

TEST(Emulator, CollectivesDoWhatCudaDefines) {
  Stream stream;
  const Device<int> out(32 * 12);
  launch(stream, shape("collectives", 1, 32), collectives, out.data());
  const auto got = out.read(stream);
  for (int lane = 0; lane < 32; ++lane) {
    const int group8 = lane / 8 * 8, group4 = lane / 4 * 4;
    const std::vector<int> want = {3,
                                   group8 + 3,
                                   lane % 16 < 2 ? lane : lane - 2,
                                   lane + 5 > 31 ? lane : lane + 5,
                                   lane ^ 9,
                                   0x49249249,
                                   1 + 4,
                                   496 * 10000 - 5 + 93,
                                   496 * 1000 + 31,
                                   (8 * group8 + 28) * 1000 + group4 + 3,
                                   lane + 2 - 3 + 127 * 4 - 128 * 5,
                                   9 + 100};
    const auto first = got.begin() + lane * 12;
    EXPECT_EQ(std::vector<int>(first, first + 12), want) << lane;
  }
}

TEST(Emulator, EventsMeasureAndGraphsReplay) {
  Stream stream;
  Event before, after;
  before.record(stream);
  after.record(stream);
  EXPECT_THROW(after.milliseconds_since(before), Fault);
  after.synchronize();
  EXPECT_GE(after.milliseconds_since(before), 0);
}

}  // namespace
}  // namespace fs::gpu

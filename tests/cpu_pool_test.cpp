#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "cpu/pool.h"

namespace fs::cpu {
namespace {

TEST(Pool, RunsEveryPieceOnce) {
  for (const std::size_t threads : {1U, 2U, 3U, 8U}) {
    Pool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 64U, 1000U}) {
      std::vector<int> runs(count);  // no atomics: each piece belongs to one thread
      pool.for_each(count, [&](std::size_t piece, std::size_t thread) {
        ASSERT_LT(thread, threads);
        ++runs[piece];
      });
      for (const int n : runs) ASSERT_EQ(n, 1) << threads << " threads, " << count << " pieces";
    }
  }
}

TEST(Pool, CutsIntoRangesThatCoverEverythingOnce) {
  for (const std::size_t threads : {1U, 2U, 3U}) {
    Pool pool(threads);
    for (const std::size_t count : {0U, 1U, 5U, 64U, 1001U}) {
      for (const std::size_t most : {1U, 4U, 9U}) {
        std::vector<int> runs(count);
        pool.for_ranges(count, most, [&](std::size_t begin, std::size_t end, std::size_t thread) {
          ASSERT_LT(begin, end);
          ASSERT_LE(end - begin, most);
          ASSERT_LT(thread, threads);
          for (std::size_t i = begin; i < end; ++i) ++runs[i];
        });
        for (const int n : runs) ASSERT_EQ(n, 1) << threads << " threads, " << count << " by " << most;
      }
    }
  }
}

TEST(Pool, SeesTheWritesOfTheLoopBefore) {
  Pool pool(4);
  constexpr std::size_t n = 97;
  std::vector<std::size_t> a(n), b(n);
  for (std::size_t round = 0; round < 3000; ++round) {
    pool.for_each(n, [&](std::size_t i, std::size_t) { a[i] = b[(i + 1) % n] + 1; });
    pool.for_each(n, [&](std::size_t i, std::size_t) { b[i] = a[(i + 31) % n]; });
  }
  for (const std::size_t value : b) ASSERT_EQ(value, 3000U);
}

TEST(Pool, OtherThreadsTakeTheWorkOfOneThatIsHeldUp) {
  Pool pool(2);
  std::atomic<std::size_t> done{0};
  const auto held_by_first_piece = [&](std::size_t piece, std::size_t) {
    if (piece == 0) {
      while (done.load() < 99) std::this_thread::yield();  // ends only if the other thread does all the rest
    } else {
      ++done;
    }
  };
  pool.for_each(100, held_by_first_piece);
  EXPECT_EQ(done.load(), 99U);
}

TEST(Pool, WakesThreadsThatSleep) {
  Pool pool(3);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::atomic<std::size_t> at_once{0};
    pool.for_each(3, [&](std::size_t, std::size_t) {  // passes only if all three run at the same time
      ++at_once;
      while (at_once.load() < 3) std::this_thread::yield();
    });
    EXPECT_EQ(at_once.load(), 3U);
  }
}

TEST(Pool, StartsAndStops) {
  for (int i = 0; i < 200; ++i) {
    Pool pool(3);
    if (i % 2 == 0) pool.for_each(5, [](std::size_t, std::size_t) {});
  }
}

}  // namespace
}  // namespace fs::cpu

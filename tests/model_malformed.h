#pragma once
// Malformed checkpoints: whatever a file says, the answer is one line that names it, and no memory beyond the
// file's size. For one source file of a program: it replaces operator new to see the largest allocation.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "model/checkpoint.h"
#include "model_fixtures.h"

inline std::atomic<std::size_t> largest_allocation{0};

inline void* counted_malloc(std::size_t size) {
  std::size_t seen = largest_allocation;
  while (seen < size && !largest_allocation.compare_exchange_weak(seen, size)) {
  }
  return std::malloc(size);
}

// Never inlined: g++ 12 would take malloc and delete, or new and free, for mismatched.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (void* memory = counted_malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted_malloc(size); }
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted_malloc(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace fs::model::testing {

using Spoil = std::function<void(SmallCheckpoint&)>;

struct Case {
  const char* name;
  Spoil spoil;
  std::vector<const char*> mentions;  // what the message must name: the file and the key or tensor
};

/// Spoils config.json by a replacement.
inline Spoil config(const char* from, const char* to) {
  return [=](SmallCheckpoint& files) { replace(files.config, from, to); };
}

/// Throws nothing and fails the test unless loading the spoiled checkpoint is refused as it should be.
inline void expect_one_line_error(const Case& item) {
  SCOPED_TRACE(item.name);
  const ScratchDirectory directory;
  SmallCheckpoint files;
  item.spoil(files);
  const Location location = files.write_to(directory.path());
  std::size_t size = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory.path())) size += file.file_size();
  largest_allocation = 0;
  try {
    ThreadPool pool(1);
    Checkpoint::open(location).load(pool);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_LE(largest_allocation, (std::size_t{1} << 20) + 32 * size);
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ExitCode::unusable) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 600U) << message;
    for (const char* mention : item.mentions) EXPECT_NE(message.find(mention), std::string::npos) << message;
  }
}

}  // namespace fs::model::testing

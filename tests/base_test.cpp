#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "base/atomic_file.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "model_fixtures.h"

namespace fs {
namespace {

using model::testing::read_bytes;
using model::testing::ScratchDirectory;
using model::testing::write_bytes;

std::size_t files_in(const std::filesystem::path& directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

template <class Body>
std::string error_of(ExitCode code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Checked, OverflowIsNothing) {
  constexpr std::size_t most = SIZE_MAX;
  EXPECT_EQ(checked_mul(3, 4), 12U);
  EXPECT_EQ(checked_mul(most, 1), most);
  EXPECT_FALSE(checked_mul(most / 2 + 1, 2));
  EXPECT_EQ(checked_add(most, 0), most);
  EXPECT_FALSE(checked_add(most, 1));
}

TEST(MappedFile, GivesTheFilesBytesAndSurvivesMoves) {
  const ScratchDirectory directory;
  write_bytes(directory / "a", "hello");
  write_bytes(directory / "empty", "");
  MappedFile file = MappedFile::open(directory / "a");
  const std::byte* const data = file.bytes().data();
  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_EQ(moved.text(), "hello");
  MappedFile other = MappedFile::open(directory / "empty");
  EXPECT_TRUE(other.bytes().empty());
  other = std::move(moved);
  EXPECT_EQ(other.text(), "hello");
  EXPECT_EQ(other.path(), directory / "a");
  std::filesystem::remove(directory / "a");
  EXPECT_EQ(other.text(), "hello");
}

TEST(MappedFile, ReleasedPagesComeBackAndOtherMemoryStays) {
  const auto content = std::string(100'000, 'x');
  const ScratchDirectory directory;
  write_bytes(directory / "a", content);
  const MappedFile file = MappedFile::open(directory / "a");
  release_pages(file.bytes());
  EXPECT_EQ(file.text(), content);
  release_pages(file.bytes().subspan(5000, 30'000));
  EXPECT_EQ(file.text(), content);
  std::vector<std::byte> memory(100'000, std::byte{7});  // anonymous pages: letting go would clear them
  release_pages(memory);
  EXPECT_EQ(memory, std::vector(memory.size(), std::byte{7}));
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const ScratchDirectory directory;
  EXPECT_NE(error_of(ExitCode::unusable, [&] { MappedFile::open(directory / "none"); }).find("none"),
            std::string::npos);
  error_of(ExitCode::unusable, [&] { MappedFile::open(directory.path()); });
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  error_of(ExitCode::unusable, [&] { MappedFile::open(directory / "pipe"); });  // and does not hang
}

TEST(ReadFile, ReadsUpToItsLimit) {
  const ScratchDirectory directory;
  const std::string text(200'000, 'x');
  write_bytes(directory / "a", text);
  EXPECT_EQ(read_file(directory / "a"), text);
  EXPECT_EQ(read_file(directory / "a", text.size()), text);
  error_of(ExitCode::unusable, [&] { read_file(directory / "a", text.size() - 1); });
  error_of(ExitCode::unusable, [&] { read_file(directory / "none"); });
  error_of(ExitCode::unusable, [&] { read_file(directory.path()); });
}

TEST(AtomicFile, ReplacesTheFileOnCommitOnly) {
  const ScratchDirectory directory;
  write_bytes(directory / "a", "old");
  {
    AtomicFile file(directory / "a");
    file.write("ne");
    file.write("w");
    EXPECT_EQ(read_bytes(directory / "a"), "old");
    file.commit();
    EXPECT_EQ(read_bytes(directory / "a"), "new");
  }
  EXPECT_EQ(read_bytes(directory / "a"), "new");
  EXPECT_EQ(files_in(directory.path()), 1U);
}

TEST(AtomicFile, KeepsTheOldFileIfItIsNotCommitted) {
  const ScratchDirectory directory;
  write_bytes(directory / "a", "old");
  try {
    AtomicFile file(directory / "a");
    file.write("half of the ne");
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(read_bytes(directory / "a"), "old");
  EXPECT_EQ(files_in(directory.path()), 1U);
}

TEST(AtomicFile, HasThePermissionsOfAnOrdinaryFile) {
  const ScratchDirectory directory;
  const mode_t mask = ::umask(022);
  AtomicFile file(directory / "a");
  file.commit();
  ::umask(mask);
  struct stat info {};
  ASSERT_EQ(::stat((directory / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644U);
}

// A file-size limit fails a write() just as a full disk does.
TEST(AtomicFile, AFullDiskKeepsTheOldFile) {
  const ScratchDirectory directory;
  write_bytes(directory / "a", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_of(ExitCode::failed, [&] {
    AtomicFile file(directory / "a");
    file.write(std::string(5000, 'x'));
    file.commit();
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find((directory / "a").string()), std::string::npos) << message;
  EXPECT_EQ(read_bytes(directory / "a"), "old");
  EXPECT_EQ(files_in(directory.path()), 1U);
}

TEST(AtomicFile, CannotBeMadeWhereThereIsNoDirectory) {
  const ScratchDirectory directory;
  error_of(ExitCode::failed, [&] { AtomicFile file(directory / "none" / "a"); });
  std::filesystem::create_directory(directory / "taken");
  error_of(ExitCode::failed, [&] {
    AtomicFile file(directory / "taken");
    file.commit();
  });
  EXPECT_EQ(files_in(directory.path()), 1U);
}

TEST(AtomicFile, FollowsLinks) {
  const ScratchDirectory directory;
  write_bytes(directory / "a", "old");
  std::filesystem::create_symlink("a", directory / "link");
  std::filesystem::create_symlink("new", directory / "dangling");
  for (const char* name : {"link", "dangling"}) {
    AtomicFile file(directory / name);
    file.write("text");
    file.commit();
    EXPECT_TRUE(std::filesystem::is_symlink(directory / name)) << name;
  }
  EXPECT_EQ(read_bytes(directory / "a"), "text");
  EXPECT_EQ(read_bytes(directory / "new"), "text");
  EXPECT_EQ(files_in(directory.path()), 4U);
}

TEST(AtomicFile, WritesIntoWhatIsNoRegularFile) {
  const ScratchDirectory directory;
  const auto pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  {
    AtomicFile file(pipe);
    file.write("text");
    file.commit();
  }
  char buffer[8] = {};
  EXPECT_EQ(::read(reader, buffer, sizeof buffer), 4);
  EXPECT_STREQ(buffer, "text");
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(files_in(directory.path()), 1U);
  std::filesystem::create_symlink("/dev/full", directory / "full");
  error_of(ExitCode::failed, [&] {
    AtomicFile file(directory / "full");
    file.write("text");
    file.commit();
  });
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  for (const char* name : {"", "-"}) error_of(ExitCode::usage, [&] { AtomicFile file{name}; });
}

TEST(AtomicFile, KeepsWhatAppearsMeanwhile) {
  const ScratchDirectory directory;
  error_of(ExitCode::failed, [&] {
    AtomicFile file(directory / "a", AtomicFile::Existing::keep);
    file.write("late");
    write_bytes(directory / "a", "first");
    file.commit();
  });
  EXPECT_EQ(read_bytes(directory / "a"), "first");
  EXPECT_EQ(files_in(directory.path()), 1U);
}

TEST(AtomicFile, TemporariesCanBeRemovedInASignalHandler) {
  const ScratchDirectory directory;
  AtomicFile one(directory / "a"), two(directory / "b");
  EXPECT_EQ(files_in(directory.path()), 2U);
  remove_temporaries();
  EXPECT_EQ(files_in(directory.path()), 0U);
}

TEST(ReadStream, ReadsPipesAndAsksWhenASignalArrives) {
  const ScratchDirectory directory;
  write_bytes(directory / "a", "text");
  EXPECT_EQ(read_stream(directory / "a", [] {}), "text");
  const auto pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  error_of(ExitCode::unusable, [&] { read_file(pipe); });  // does not wait
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval soon{{0, 20'000}, {0, 20'000}}, never{};
  ::setitimer(ITIMER_REAL, &soon, nullptr);
  error_of(ExitCode::interrupted,
           [&] { read_stream(pipe, [] { fail(ExitCode::interrupted, "interrupted"); }); });
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
}

TEST(Json, BoundsDepthAndNamesTheSource) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(JsonDocument::parse(nested(63), "x"));
  for (const std::string& text :
       {nested(65), nested(1'000'000), std::string(), std::string("{} {}"), std::string("{'a':1}")}) {
    EXPECT_NE(
        error_of(ExitCode::unusable, [&] { JsonDocument::parse(text, "the source"); }).find("the source"),
        std::string::npos);
  }
}

TEST(Json, SurvivesItsTextAndMoves) {
  std::string text = R"({"a": ["b\u0041"]})";
  JsonDocument first = JsonDocument::parse(text, "x");
  text.assign(text.size(), '#');
  const JsonDocument second = std::move(first);
  EXPECT_EQ(std::string_view(second.root()["a"].at(0)), "bA");
}

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (const std::size_t threads : {1UL, 2UL, 3UL, 7UL}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::size_t count : {0UL, 1UL, 2UL, 6UL, 7UL, 8UL, 1000UL}) {
      std::vector<std::atomic<int>> seen(count);
      pool.for_ranges(count, [&](std::size_t begin, std::size_t end) {
        EXPECT_LT(begin, end);
        for (std::size_t i = begin; i < end; ++i) ++seen[i];
      });
      for (const auto& times : seen) EXPECT_EQ(times, 1);
    }
  }
}

TEST(ThreadPool, RunsManyShortLoops) {
  ThreadPool pool(3);
  std::atomic<std::size_t> total{0};
  for (int i = 0; i < 2000; ++i)
    pool.for_ranges(3, [&](std::size_t begin, std::size_t end) { total += end - begin; });
  EXPECT_EQ(total, 6000U);
}

TEST(ThreadPool, RethrowsFromEveryThreadAndStaysUsable) {
  ThreadPool pool(3);
  for (std::size_t bad = 0; bad < 3; ++bad) {
    const auto body = [&](std::size_t begin, std::size_t) {
      if (begin == bad) throw std::runtime_error("piece " + std::to_string(bad));
    };
    try {
      pool.for_ranges(3, body);
      ADD_FAILURE() << "no exception from piece " << bad;
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "piece " + std::to_string(bad));
    }
  }
  std::atomic<int> pieces{0};
  pool.for_ranges(3, [&](std::size_t, std::size_t) { ++pieces; });
  EXPECT_EQ(pieces, 3);
}

TEST(ThreadPool, ThereIsAProcessor) { EXPECT_GE(available_processors(), 1U); }

}  // namespace
}  // namespace fs

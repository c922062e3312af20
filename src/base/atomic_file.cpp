#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace fs {
namespace {

/// Names of temporaries for remove_temporaries(): those that find no place are left behind by a signal.
std::array<std::atomic<const char*>, 16> temporaries;
static_assert(std::atomic<const char*>::is_always_lock_free, "a signal handler reads it");

void remember_temporary(const char* name) {
  for (auto& place : temporaries) {
    const char* none = nullptr;
    if (place.compare_exchange_strong(none, name)) return;
  }
}

void forget_temporary(const char* name) {
  for (auto& place : temporaries) {
    const char* expected = name;
    if (place.compare_exchange_strong(expected, nullptr)) return;
  }
}

/// Files by device and inode.
struct UsedFiles {
  std::mutex mutex;
  bool protect = false;
  std::set<std::pair<dev_t, ino_t>> files;
};
UsedFiles& used_files() {
  static UsedFiles used;
  return used;
}

bool is_used(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  UsedFiles& used = used_files();
  const std::lock_guard lock(used.mutex);
  return used.protect && used.files.contains({info.st_dev, info.st_ino});
}

/// The file that a path stands for, also where the last link points to nothing yet.
std::filesystem::path follow_links(std::filesystem::path path) {
  constexpr int most_links = 40;  // as the kernel
  std::error_code none;
  for (int i = 0; i < most_links && std::filesystem::is_symlink(path, none); ++i) {
    const auto to = std::filesystem::read_symlink(path, none);
    path = to.is_absolute() ? to : path.parent_path() / to;
  }
  return path;
}

}  // namespace

void protect_used_files() { used_files().protect = true; }

void note_used_file(int descriptor) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return;
  UsedFiles& used = used_files();
  const std::lock_guard lock(used.mutex);
  if (used.protect) used.files.insert({info.st_dev, info.st_ino});
}

void remove_temporaries() noexcept {
  for (const auto& place : temporaries) {
    if (const char* name = place.load()) ::unlink(name);
  }
}

AtomicFile::AtomicFile(const std::filesystem::path& path, Existing existing)
    : path_(path), existing_(existing) {
  if (path.empty() || path == "-") {
    fail(ExitCode::usage, "\"{}\" is no file to write to: name one, or a device such as /dev/stdout",
         path.string());
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) fail(ExitCode::failed, "{}: is a directory, expected a file", path.string());
    fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) give_up("open");
    return;
  }
  target_ = follow_links(path);
  const auto directory = target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  std::string name = (directory / ".fs-XXXXXX").string();
  fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) give_up("create");
  temporary_ = name;
  remember_temporary(temporary_.c_str());
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(fd_, 0666 & ~mask) != 0) give_up("set permissions of");
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (fd_ >= 0 && !in_place()) ::unlink(temporary_.c_str());
  if (!in_place()) forget_temporary(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) give_up("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (in_place()) {
    if (::close(std::exchange(fd_, -1)) != 0) give_up("write");
    return;
  }
  if (is_used(target_)) {
    fail(ExitCode::usage, "{}: this command reads that file or has just written it; name another one",
         path_.string());
  }
  while (::fsync(fd_) != 0) {
    if (errno != EINTR) give_up("write");
  }
  // Without the flag where the file system does not know it.
  const unsigned flags = existing_ == Existing::keep ? RENAME_NOREPLACE : 0;
  int renamed = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), flags);
  if (renamed != 0 && errno == EINVAL) renamed = ::rename(temporary_.c_str(), target_.c_str());
  if (renamed != 0 && errno == EEXIST && existing_ == Existing::keep) {
    fail(ExitCode::failed, "{}: appeared while it was being written; --force replaces it", path_.string());
  }
  if (renamed != 0) give_up("rename to");
  note_used_file(fd_);
  ::close(std::exchange(fd_, -1));
}

void AtomicFile::check(const std::filesystem::path& path) {
  struct stat info {};
  const bool special = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  if (!special) AtomicFile{path};  // whoever reads a pipe must not see it opened twice
}

void AtomicFile::give_up(const char* step) {
  // A constructor that throws has no destructor.
  const int reason = errno;
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!in_place()) ::unlink(temporary_.c_str());
  if (!in_place()) forget_temporary(temporary_.c_str());
  fail(ExitCode::failed, "{}: cannot {}: {}", path_.string(), step, std::strerror(reason));
}

}  // namespace fs

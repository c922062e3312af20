#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fs {
namespace {

/// A file descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(std::filesystem::path path, const std::byte* data, std::size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(ExitCode::unusable, "{}: cannot open: {}", path.string(), std::strerror(errno));
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) {
    fail(ExitCode::unusable, "{}: cannot stat: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) fail(ExitCode::unusable, "{}: not a regular file", path.string());
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return {path, nullptr, 0};  // mmap refuses length 0
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    fail(ExitCode::unusable, "{}: cannot map {} bytes: {}", path.string(), size, std::strerror(errno));
  }
  return {path, static_cast<const std::byte*>(data), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const std::filesystem::path& path, std::size_t limit) {
  const bool standard_input = path == "-";
  const Descriptor file{standard_input ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  const std::string name = standard_input ? "standard input" : path.string();
  if (file.fd < 0) fail(ExitCode::unusable, "{}: cannot open: {}", name, std::strerror(errno));
  std::string content;
  constexpr std::size_t chunk = std::size_t{1} << 16;
  for (;;) {
    const std::size_t old = content.size();
    content.resize(old + chunk);
    const ssize_t got = ::read(file.fd, content.data() + old, chunk);
    if (got < 0 && errno == EINTR) {
      content.resize(old);
      continue;
    }
    if (got < 0) fail(ExitCode::unusable, "{}: cannot read: {}", name, std::strerror(errno));
    content.resize(old + static_cast<std::size_t>(got));
    if (got == 0) return content;
    if (content.size() > limit) fail(ExitCode::unusable, "{}: larger than {} bytes", name, limit);
  }
}

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(path_.string() + ".XXXXXX") {
  std::string name = temporary_.string();
  fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) fail(ExitCode::failed, "{}: cannot create: {}", path_.string(), std::strerror(errno));
  temporary_ = name;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(fd_, 0666 & ~mask) != 0) give_up("set permissions of");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
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
  if (::fsync(fd_) != 0) give_up("write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) give_up("rename to");
  ::close(std::exchange(fd_, -1));
}

void AtomicFile::give_up(const char* step) {
  fail(ExitCode::failed, "{}: cannot {}: {}", path_.string(), step, std::strerror(errno));
}

}  // namespace fs

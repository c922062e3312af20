#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"

namespace fs {
namespace {

/// A file descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  std::size_t size = 0;  ///< of a regular file

  Descriptor(int opened) : fd(opened) {}
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)), size(other.size) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

/// Never waits for the other end of a pipe.
Descriptor open_regular(const std::filesystem::path& path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(ExitCode::unusable, "{}: cannot open: {}", path.string(), std::strerror(errno));
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) {
    fail(ExitCode::unusable, "{}: cannot stat: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) fail(ExitCode::unusable, "{}: not a regular file", path.string());
  note_used_file(file.fd);
  file.size = static_cast<std::size_t>(info.st_size);
  return file;
}

/// Where files are mapped, so that release_pages() touches no other memory.
struct Mappings {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> sizes;

  static Mappings& all() {
    static Mappings mappings;
    return mappings;
  }
};

std::string read_to_end(int fd, const std::string& name, std::size_t limit,
                        const std::function<void()>& check) {
  std::string content;
  constexpr std::size_t chunk = std::size_t{1} << 16;
  for (;;) {
    const std::size_t old = content.size();
    content.resize(old + chunk);
    const ssize_t got = ::read(fd, content.data() + old, chunk);
    if (got < 0 && errno == EINTR) {
      content.resize(old);
      if (check) check();
      continue;
    }
    if (got < 0) fail(ExitCode::unusable, "{}: cannot read: {}", name, std::strerror(errno));
    content.resize(old + static_cast<std::size_t>(got));
    if (got == 0) return content;
    if (content.size() > limit) fail(ExitCode::unusable, "{}: larger than {} bytes", name, limit);
  }
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path, const std::byte* data, std::size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file = open_regular(path);
  const std::size_t size = file.size;
  if (size == 0) return {path, nullptr, 0};  // mmap refuses length 0
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    fail(errno == ENOMEM ? ExitCode::failed : ExitCode::unusable, "{}: cannot map {} bytes: {}",
         path.string(), size, std::strerror(errno));
  }
  const std::lock_guard lock(Mappings::all().mutex);
  Mappings::all().sizes.emplace(static_cast<const std::byte*>(data), size);
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
  if (data_ == nullptr) return;
  const std::lock_guard lock(Mappings::all().mutex);
  Mappings::all().sizes.erase(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void release_pages(std::span<const std::byte> bytes) {
  const std::lock_guard lock(Mappings::all().mutex);
  auto mapping = Mappings::all().sizes.upper_bound(bytes.data());
  if (mapping == Mappings::all().sizes.begin()) return;
  --mapping;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(bytes.data() - mapping->first);
  if (offset >= mapping->second || bytes.size() > mapping->second - offset) return;
  const std::size_t first = (offset + page - 1) / page * page, end = (offset + bytes.size()) / page * page;
  if (first < end) ::madvise(const_cast<std::byte*>(mapping->first) + first, end - first, MADV_DONTNEED);
}

std::string read_file(const std::filesystem::path& path, std::size_t limit) {
  const Descriptor file = open_regular(path);
  return read_to_end(file.fd, path.string(), limit, {});
}

std::string read_stream(const std::filesystem::path& path, const std::function<void()>& check,
                        std::size_t limit) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "standard input" : path.string();
  const auto open = [&] {
    return standard_input ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  };
  int fd = open();
  while (fd < 0 && errno == EINTR) {  // a pipe that nobody writes to yet
    check();
    fd = open();
  }
  const Descriptor file{fd};
  if (fd < 0) fail(ExitCode::unusable, "{}: cannot open: {}", name, std::strerror(errno));
  note_used_file(fd);
  return read_to_end(fd, name, limit, check);
}

}  // namespace fs

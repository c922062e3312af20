#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace fs {

/// A whole file, mapped read-only. Bytes stay valid for the object's lifetime (moves included).
class MappedFile {
 public:
  /// Maps a regular file. Throws Error(unusable) naming the path if it is missing, unreadable or no regular
  /// file.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile(std::filesystem::path path, const std::byte* data, std::size_t size);
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Lets go of the pages of a stretch of memory if a MappedFile holds it: for bytes that have been copied and
/// are hardly needed again, which the file gives back if they are. Does nothing to other memory.
void release_pages(std::span<const std::byte> bytes);

/// Reads a whole regular file into memory: for small ones. Throws Error(unusable) if it is missing, not
/// readable, no regular file or larger than `limit` bytes.
std::string read_file(const std::filesystem::path& path, std::size_t limit = std::size_t{1} << 30);

/// Reads what a user names as input to its end, a pipe included; `-` is standard input. Calls `check` where a
/// signal arrives meanwhile, which may throw. Throws Error(unusable) if it cannot be read or is larger than
/// `limit` bytes.
std::string read_stream(const std::filesystem::path& path, const std::function<void()>& check,
                        std::size_t limit = std::size_t{1} << 30);

}  // namespace fs

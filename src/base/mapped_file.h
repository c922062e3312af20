#pragma once
#include <cstddef>
#include <filesystem>
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

/// Reads a whole file into memory: for small files and for pipes. `-` is standard input.
/// Throws Error(unusable) if it cannot be read or is larger than `limit` bytes.
std::string read_file(const std::filesystem::path& path, std::size_t limit = std::size_t{1} << 30);

/// Replaces a file whole: writes a temporary name in the same directory, syncs, renames. On any error the old
/// file is untouched, the temporary is gone and Error(failed) says why (a full disk included).
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  ///< drops the temporary if commit() was not reached

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  void commit();

 private:
  [[noreturn]] void give_up(const char* step);
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

}  // namespace fs

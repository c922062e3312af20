#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace fs {

/// Writes a file whole: under a temporary name in the same directory, synced, then renamed. On any error the
/// old file is untouched, the temporary is gone and Error(failed) says why (a full disk included). Symbolic
/// links are followed. What is there and no regular file (a pipe, /dev/stdout) is written as it goes.
class AtomicFile {
 public:
  enum class Existing { replace, keep };

  /// Throws Error(usage) for an empty name or `-`, Error(failed) where nothing can be written there.
  explicit AtomicFile(const std::filesystem::path& path, Existing existing = Existing::replace);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  ///< drops the temporary if commit() was not reached

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Throws Error(failed) if a file to be kept has appeared meanwhile, Error(usage) if the file is one that
  /// this program has read or written before (see protect_used_files).
  void commit();

  /// Throws as writing the file would, as far as that can be told before there is anything to write.
  static void check(const std::filesystem::path& path);

 private:
  [[noreturn]] void give_up(const char* step);
  bool in_place() const { return temporary_.empty(); }

  std::filesystem::path path_;    ///< as it was given, for messages
  std::filesystem::path target_;  ///< what it stands for, links followed
  std::filesystem::path temporary_;
  Existing existing_;
  int fd_ = -1;
};

/// From now on a file that this process has read, or written before, is not replaced: an output given the
/// name of an input, or of another output, would destroy it. For programs, which run one command.
void protect_used_files();
/// Notes the open file as used.
void note_used_file(int descriptor);

/// Deletes the temporaries of files that are being written. Safe in a signal handler.
void remove_temporaries() noexcept;

}  // namespace fs

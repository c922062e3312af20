#pragma once
#include <simdjson.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace fs {

/// A parsed JSON document and the name its errors carry. simdjson reads (here), nlohmann-json writes (cli/).
class JsonDocument {
 public:
  /// Parses `text`, which is copied. `source` names it in errors (a path). Throws Error(unusable) if it is no
  /// valid JSON or nests deeper than `max_depth`.
  static JsonDocument parse(std::string_view text, std::string source, std::size_t max_depth = 64);
  /// Parses a file of at most `limit` bytes.
  static JsonDocument load(const std::filesystem::path& path, std::size_t limit);

  simdjson::dom::element root() const { return root_; }
  const std::string& source() const { return source_; }

 private:
  JsonDocument() = default;
  std::unique_ptr<simdjson::dom::parser> parser_;  // owns the memory that root_ points into
  simdjson::dom::element root_;
  std::string source_;
};

}  // namespace fs

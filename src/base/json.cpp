#include "base/json.h"

#include <new>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"

namespace fs {

JsonDocument JsonDocument::parse(std::string_view text, std::string source, std::size_t max_depth) {
  JsonDocument document;
  document.source_ = std::move(source);
  document.parser_ = std::make_unique<simdjson::dom::parser>();
  auto error = document.parser_->allocate(text.size(), max_depth);
  if (!error) error = document.parser_->parse(text.data(), text.size()).get(document.root_);
  if (error == simdjson::MEMALLOC) throw std::bad_alloc();
  if (error) {
    fail(ExitCode::unusable, "{}: not valid JSON: {}", document.source_, simdjson::error_message(error));
  }
  return document;
}

JsonDocument JsonDocument::load(const std::filesystem::path& path, std::size_t limit) {
  const MappedFile file = MappedFile::open(path);
  if (file.bytes().size() > limit) {
    fail(ExitCode::unusable, "{}: {} bytes, more than the {} expected at most of such a file", path.string(),
         file.bytes().size(), limit);
  }
  return parse(file.text(), path.string());
}

}  // namespace fs

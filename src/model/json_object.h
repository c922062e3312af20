#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace fs::model {

/// One JSON object of a named file, read field by field. Every error is Error(unusable) and names the file,
/// the key, what was found and what is expected.
class JsonObject {
 public:
  /// `where` names the object in errors: "…/config.json", "…/config.json: rope_parameters". Throws if it is
  /// no object.
  JsonObject(simdjson::dom::element value, std::string where);

  const std::string& where() const { return where_; }
  simdjson::dom::object fields() const { return object_; }

  /// The value of a key (JSON's null included), or nothing if the key is absent.
  std::optional<simdjson::dom::element> find(std::string_view key) const;
  /// As find(), with null as good as absent.
  std::optional<simdjson::dom::element> find_set(std::string_view key) const;
  /// The value of a key that must be there.
  simdjson::dom::element at(std::string_view key, std::string_view expected) const;

  std::size_t integer(std::string_view key, std::size_t least, std::size_t most) const;
  double number(std::string_view key, double least, double most) const;
  bool boolean(std::string_view key) const;
  std::string_view text(std::string_view key) const;

  [[noreturn]] void reject(std::string_view key, simdjson::dom::element found,
                           std::string_view expected) const;

 private:
  simdjson::dom::object object_;
  std::string where_;
};

/// A value in a few words: `null`, `"gelu"`, `an array of 3`, `1.5`.
std::string describe(simdjson::dom::element value);

/// Throws Error(unusable) naming the key if any object in the document has the same key twice: parsers
/// disagree about which one counts.
void check_unique_keys(const JsonDocument& document);

}  // namespace fs::model

#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/types.h"
#include "text/tokenizer.h"

namespace fs::cli {

/// Keys stay in the order in which they were added.
using Json = nlohmann::ordered_json;

/// One document on one line, with its end. What is no valid UTF-8 comes out as U+FFFD.
std::string json_line(const Json& document);
void print_json(const Json& document);

/// The text of one token for a table: quoted, or "-" if there is no such text.
std::string quoted_piece(const text::Tokenizer* tokenizer, TokenId id);

/// The same for JSON: a string, null if there is no such text. A piece that is not whole characters has
/// U+FFFD.
Json json_piece(const text::Tokenizer* tokenizer, TokenId id);
Json json_pieces(const text::Tokenizer* tokenizer, std::span<const TokenId> ids);

}  // namespace fs::cli

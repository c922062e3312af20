#include "cli/json_output.h"

#include "cli/terminal.h"
#include "text/utf8.h"

namespace fs::cli {

std::string json_line(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void print_json(const Json& document) { print(json_line(document)); }

std::string quoted_piece(const text::Tokenizer* tokenizer, TokenId id) {
  if (tokenizer == nullptr || id >= tokenizer->size()) return "-";
  return text::quote(tokenizer->bytes(id));
}

Json json_piece(const text::Tokenizer* tokenizer, TokenId id) {
  if (tokenizer == nullptr || id >= tokenizer->size()) return nullptr;
  return text::lossy_utf8(tokenizer->bytes(id)).text;
}

Json json_pieces(const text::Tokenizer* tokenizer, std::span<const TokenId> ids) {
  Json pieces = Json::array();
  for (const TokenId id : ids) pieces.push_back(json_piece(tokenizer, id));
  return pieces;
}

}  // namespace fs::cli

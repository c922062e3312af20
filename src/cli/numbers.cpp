#include "cli/numbers.h"

#include <algorithm>

namespace fs::cli {

std::vector<TokenId> parse_token_ids(std::string_view text, std::string_view what) {
  constexpr std::string_view separators = ", \t\r\n[]";  // a pasted JSON array is welcome
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(separators); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    ids.push_back(parse_number<TokenId>(text.substr(at, end - at), what));
    at = text.find_first_not_of(separators, end);
  }
  return ids;
}

std::vector<std::string_view> split_list(std::string_view text, std::string_view what) {
  std::vector<std::string_view> items;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (end == at)
      fail(ExitCode::usage, "{}: \"{}\" has an empty item; expected a list such as a,b,c", what, text);
    items.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return items;
}

std::vector<std::size_t> parse_index_list(std::string_view text, std::string_view what, std::size_t limit) {
  if (limit == 0) fail(ExitCode::usage, "{}: \"{}\", but there is nothing to choose from", what, text);
  std::vector<std::size_t> indices;
  for (const std::string_view item : split_list(text, what)) {
    const std::size_t dash = item.find('-');
    const auto first = parse_number<std::size_t>(item.substr(0, dash), what, 0, limit - 1);
    const auto last = dash == std::string_view::npos
                          ? first
                          : parse_number<std::size_t>(item.substr(dash + 1), what, first, limit - 1);
    for (std::size_t index = first; index <= last; ++index) indices.push_back(index);
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

}  // namespace fs::cli

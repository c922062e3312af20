#include "cli/stop_texts.h"

#include <algorithm>

namespace fs::cli {

std::string StopTexts::push(std::string_view piece) {
  held_ += piece;
  // The first to be complete ends the stream, so that the result does not depend on how it is cut into
  // pieces; of two that end together the longer one began first.
  std::size_t first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const std::size_t end = at + stop.size();
    if (end < first_end || (end == first_end && stop.size() > found_->size())) {
      first_end = end;
      found_ = stop;
    }
  }
  if (found_) {
    std::string before = held_.substr(0, first_end - found_->size());
    held_.clear();
    return before;
  }

  std::size_t keep = 0;  // the longest end of held_ that begins a stop
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (held_.ends_with(std::string_view(stop).substr(0, length))) keep = length;
    }
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

}  // namespace fs::cli

#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace fs {

/// An index into the vocabulary.
using TokenId = std::uint32_t;

/// Called now and then by anything that may last over a second: `stage` names the work ("load", "prefill",
/// …), done ≤ total in the stage's own unit. It may throw (Ctrl-C does), and the work then stops cleanly.
using Progress = std::function<void(std::string_view stage, std::uint64_t done, std::uint64_t total)>;

}  // namespace fs

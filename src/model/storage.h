#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

namespace fs::model {

/// Memory for weights: page-aligned, in 2 MiB pages where the system has them (streaming reads are some 10 %
/// faster than from small ones), taken as it is written. Throws Error(failed), naming `what` it is for, if there is not enough.
std::shared_ptr<std::byte> weight_memory(std::size_t bytes, std::string_view what = "weights");

}  // namespace fs::model

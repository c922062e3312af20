#pragma once
#include <string>

#include "base/error.h"

namespace fs {

/// Memory has run out. What would need less of it only the command knows: run() adds that to the message.
class MemoryError : public Error {
 public:
  MemoryError(ExitCode code, const std::string& message) : Error(code, message) {}
};

}  // namespace fs

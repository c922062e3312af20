#pragma once
#include <string>

namespace fs::cli {

/// "fs 0.1.0 (g++ 12.2.0)", and whether it was built without optimisation.
std::string build_text();

/// What `fs --version` prints: the build, and a line with the instruction sets of the cpu backend that this
/// processor can run, the one it uses first.
std::string version_text();

}  // namespace fs::cli

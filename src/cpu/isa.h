#pragma once
#include <string_view>
#include <vector>

#include "cpu/kernels.h"

namespace fs::cpu {

/// The instruction sets that this build has and this processor can run, best first. Never empty.
std::vector<const Kernels*> available_kernels();

/// The kernels of an instruction set: "auto" for the best one, or a name. Throws Error(usage) for a name that
/// is unknown here or that this processor cannot run, saying which ones it can.
const Kernels& choose_kernels(std::string_view isa);

}  // namespace fs::cpu

#pragma once
#include <string_view>

#include "cli/options.h"

namespace fs::cli {

/// Which model to run, and how: what a command's flags say, or a SPEC in one word.
struct ComputeSpec {
  CommonOptions common;
  ComputeOptions compute;
};

/// Reads a SPEC,
/// `backend[:dtype][,dtype=DTYPE][,isa=ISA][,kv=KV][,act=ACT][,threads=N][,device=N][,model=MODEL]`; what it
/// leaves out is as in `defaults`, but --isa, --device and --sync where the backend does not have them.
/// Throws Error(usage) naming `flag`.
ComputeSpec parse_spec(std::string_view text, std::string_view flag, const ComputeSpec& defaults);

}  // namespace fs::cli

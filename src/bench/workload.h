#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace fs::bench {

/// One thing to time, in llama-bench's terms: pp512 is a prompt of 512 tokens in one call, tg128 are 128
/// tokens one after another; @d2048: behind 2048 tokens that are not timed. tg128x8: 128 tokens of each of 8
/// sequences that are decoded at once.
struct Workload {
  enum class Kind { prefill, decode };
  Kind kind = Kind::decode;
  std::size_t tokens = 0;  ///< ≥ 1
  std::size_t depth = 0;
  std::size_t sequences = 1;  ///< of a prompt: 1

  std::string name() const;                                 ///< "pp512", "tg128x8@d2048"
  std::size_t positions() const { return depth + tokens; }  ///< of context each sequence takes
  std::size_t all_tokens() const { return tokens * sequences; }
};

/// Depth by depth, prompts before decoding, that by numbers of sequences. A count of 0 is left out.
std::vector<Workload> workloads(const std::vector<std::size_t>& prompts,
                                const std::vector<std::size_t>& generations,
                                const std::vector<std::size_t>& depths,
                                const std::vector<std::size_t>& sequences = {1});

/// What a workload has to do at the least, whatever does it.
struct Cost {
  double bytes = 0;  ///< read from memory
  double flops = 0;  ///< a multiplication and an addition are two
};

/// Bytes: a pass reads every matrix once (of the embedding the rows of its tokens; a tied head whole), the
/// norms, and once the keys and values of every position it sees, `kv_position_bytes` each. A prompt is one
/// pass, decoding one for each token, which all sequences share. FLOPs: the products with matrices, and q·k
/// and p·v of the causal attention; of a pass, the head runs on the last token, and of the others the last
/// layer needs nothing but keys and values. What is linear in the width (norms, RoPE, softmax) is not
/// counted.
Cost cost(const Workload& workload, const model::Config& config, const model::Weights& weights,
          std::size_t kv_position_bytes);

}  // namespace fs::bench

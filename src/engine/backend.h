#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "engine/sampler.h"
#include "engine/tap.h"
#include "model/config.h"
#include "model/weights.h"

namespace fs::engine {

/// Keys and values of one timeline, on the backend's device. Only the backend that made it can read it.
class KvCache {
 public:
  virtual ~KvCache() = default;
};

/// For which rows of a forward call the head runs.
enum class LogitRows { none, last, all };

/// One forward call: tokens at consecutive positions, on top of what the cache holds before them.
struct Pass {
  std::span<const TokenId> tokens;  ///< [rows], rows ≥ 1, each < vocab_size
  std::size_t first_position = 0;   ///< the cache holds exactly the positions before this one
  std::uint64_t run = 0;            ///< tag for the taps
  LogitRows logit_rows = LogitRows::last;
  std::span<float> logits;  ///< out: [0 | 1 | rows, vocab_size], as logit_rows says
  TapObserver* taps = nullptr;
};

/// A decode step: one token of one timeline.
struct Step {
  KvCache& cache;
  TokenId token;
  std::size_t position;  ///< the cache holds those before it, with what earlier steps of the call put there
};

/// Decode steps of which each runs the token that the one before chose.
struct Continuation {
  TokenId token = 0;               ///< runs first
  std::size_t first_position = 0;  ///< its position, on top of what the cache holds before it
  const Sampler& sampler;
  std::span<const TokenId> stop_ids;  ///< no step follows the choice of one of these
  std::span<Choice> choices;          ///< out: as many steps at most, one or more
};

/// All launches of one kernel in a decode step.
struct KernelTime {
  std::string name;  ///< "swiglu"
  std::size_t launches = 0;
  double bytes = 0;  ///< that they must read from the device's memory
  std::vector<double>
      seconds;  ///< of all of them, one behind another without the other kernels; [repetitions]
};

/// Hands `values` [rows, heads, width] to the pass's observer if it wants them. Rows are the last ones of the
/// pass.
inline void deliver(const Pass& pass, TapPoint point, std::size_t layer, std::size_t heads, std::size_t width,
                    std::span<float> values) {
  if (pass.taps == nullptr || !pass.taps->wants(point, layer)) return;
  const std::size_t rows = values.size() / (heads * width);
  const std::size_t first = pass.first_position + pass.tokens.size() - rows;
  pass.taps->observe({point, layer, pass.run, first, rows, heads, width, values});
}

/// A model on a device: immutable, shared by any number of sessions, used by one thread at a time. A backend
/// is chosen once, in make_backend; nothing else asks which device it is on.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual const model::Config& config() const = 0;
  /// A cache for at most `context` positions. Memory is taken as positions are filled.
  virtual std::unique_ptr<KvCache> make_cache(std::size_t context) const = 0;
  /// Tokens that one forward call should take at most: bounds scratch memory, and a Ctrl-C waits for no more
  /// than this.
  virtual std::size_t preferred_chunk() const = 0;
  /// How decode steps run, where --step is a choice: graph | persistent.
  virtual std::string_view step() const { return ""; }
  /// Bytes of keys and values that a pass reads for each position it sees, all layers together.
  virtual std::size_t kv_position_bytes() const = 0;
  /// Runs the pass and stores keys and values of its positions, replacing any that stood there.
  virtual void forward(KvCache& cache, const Pass& pass) const = 0;
  /// Runs decode steps, of any number of timelines and several of one, as forward() of each token by itself,
  /// one after another, would: the same keys, values and logits, to the bit. There are no taps: a batch holds
  /// rows of several timelines, and each can be watched in forward(). A backend that can lets steps share
  /// each read of the weights.  logits, out: [steps, vocab_size]
  virtual void run_steps(std::span<const Step> steps, std::span<float> logits) const {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      Pass pass;
      pass.tokens = {&steps[i].token, 1};
      pass.first_position = steps[i].position;
      pass.logits = logits.subspan(i * config().vocab_size, config().vocab_size);
      forward(steps[i].cache, pass);
    }
  }
  /// Steps that one run_steps() takes for little more than the price of one. 1: they share nothing.
  virtual std::size_t preferred_steps() const { return 1; }
  /// Where the backend can sample: runs steps and chooses the tokens that forward() and the sampler would.
  /// Returns how many; if fewer than asked for and no stop id, the step after the last is one for forward().
  /// 0 in particular: this backend, or this sampler, is not one of those.
  virtual std::size_t continue_with(KvCache&, const Continuation&) const { return 0; }

  // For benchmarks, of backends with a device of their own.

  /// Bytes a second that its memory copies, each read and written one counted as one, measured now; 0: its
  /// memory is the host's, or has no room for a copy.
  virtual double copy_rate() const { return 0; }
  /// Times each kernel of a decode step at `position`, in the order of their first launches. Values there and
  /// behind it are undefined afterwards. Empty: there are no kernels.
  virtual std::vector<KernelTime> time_kernels(KvCache&, std::size_t /*position*/,
                                               std::size_t /*repetitions*/) const {
    return {};
  }
};

/// The choices behind --backend, --threads, --isa, --kv, --act, --ctx, --prefill-chunk, --device, --step and
/// --sync.
struct BackendOptions {
  std::string_view name = "auto";  ///< auto (the fastest here) | cuda | cpu | reference | cuda-emulated
  std::size_t threads = 0;         ///< 0: as many as there are processors
  std::string_view isa = "auto";   ///< instruction set of the cpu backend: auto | portable | avx2
  /// Told why auto does not take the card, which flags have no effect then, and what memory is taken of it.
  std::function<void(const std::string&)> notice = nullptr;
  std::string_view kv = "f32";   ///< keys and values in the cache: f32 | f16 | bf16; reference has f32 only
  std::string_view act = "f32";  ///< activations in matrix products: f32 | bf16 | int8, of cpu; bf16 of cuda
  std::size_t context = 0;       ///< tokens for which a card has to have memory; 0: as they come
  std::optional<std::size_t> prefill_chunk =
      std::nullopt;  ///< rows of a forward call at most, if not what the backend prefers
  std::optional<std::size_t> device =
      std::nullopt;  ///< number of the card, 0 if not given; with it auto takes the card or fails
  std::string_view step = "graph";  ///< cuda: a decode step is a graph of kernels, or persistent: one kernel
  bool sync = false;                ///< cuda: wait for every kernel, and name the one that fails
};

// What make_backend() refuses before weights are loaded.

/// By the options alone: instruction sets that are not available, and flags that the backend does not have
/// (backend_flags.h). Throws Error(usage).
void check_options(const BackendOptions& options);
/// Throws Error(device) where this build or this machine has no such device, Error(unusable) for a shape that
/// its kernels cannot take.
void check_model(const BackendOptions& options, const model::Config& config);
/// A weight matrix by its name and the name of its dtype. Throws Error(usage) if act is not for it.
void check_weight(const BackendOptions& options, std::string_view name, std::string_view dtype);

/// Throws Error as the three above, and Error(usage) for an unknown name. Of flags that a backend does not
/// have which auto chose it tells options.notice.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, const model::Config& config,
                                      model::Weights weights);

}  // namespace fs::engine

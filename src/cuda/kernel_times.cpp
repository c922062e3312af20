#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/cuda.h"

namespace fs::cuda::FS_GPU_BUILD {
namespace {

using gpu::LaunchShape;

/// Seconds that the device takes for what `work` gives to the stream.
double seconds_of(gpu::Stream& stream, const std::function<void()>& work) {
  gpu::Event begin, end;
  begin.record(stream);
  work();
  end.record(stream);
  end.synchronize();
  return static_cast<double>(end.milliseconds_since(begin)) / 1e3;
}

/// While one lives, a stream takes only the launches that `wanted` wants.
class ChosenLaunches {
 public:
  ChosenLaunches(gpu::Stream& stream, std::function<bool(const LaunchShape&)> wanted) : stream_(stream) {
    stream_.choose_launches(std::move(wanted));
  }
  ~ChosenLaunches() { stream_.choose_launches(nullptr); }
  ChosenLaunches(const ChosenLaunches&) = delete;
  ChosenLaunches& operator=(const ChosenLaunches&) = delete;

 private:
  gpu::Stream& stream_;
};

}  // namespace

/// The best of a few copies, larger than caches.
double Cuda::copy_rate() const {
  constexpr std::size_t least = std::size_t{1} << 27, copies = 10;
  const std::size_t bytes = std::max(least, 2 * gpu::cache_bytes());
  if (2 * bytes > gpu::free_memory()) return 0;
  const DeviceArray<unsigned char> from(bytes), to(bytes);
  gpu::clear(from.data(), bytes, stream_);
  double best = 0;
  for (std::size_t i = 0; i < copies; ++i) {
    const double seconds =
        seconds_of(stream_, [&] { gpu::copy_on_device(to.data(), from.data(), bytes, stream_); });
    best = std::max(best, 2 * static_cast<double>(bytes) / seconds);
  }
  return best;
}

/// A kernel by itself is the recorded step without the others: its launches follow one another as they do in
/// the step, each with its own layer's weights. Before each run the device's cache is filled with something
/// else, as the other kernels would have done.
std::vector<engine::KernelTime> Cuda::time_kernels(engine::KvCache& kv_cache, std::size_t position,
                                                   std::size_t repetitions) const {
  auto& cache = static_cast<KvCache&>(kv_cache);
  cache.grow(position + 1);
  set_state(0, position, {.n_ids = static_cast<int>(config_.vocab_size)});
  const auto step = [&] { decode_step(cache, Pass{}); };
  step();  // what a kernel finds is another's result

  std::vector<engine::KernelTime> found;
  {
    const ChosenLaunches none(stream_, [&](const LaunchShape& shape) {
      const auto same = [&](const engine::KernelTime& kernel) { return kernel.name == shape.kernel; };
      auto at = std::find_if(found.begin(), found.end(), same);
      if (at == found.end()) at = found.insert(found.end(), {shape.kernel, 0, 0, {}});
      ++at->launches;
      at->bytes += static_cast<double>(shape.reads.bytes + (position + 1) * shape.reads.position_bytes);
      return false;
    });
    step();
  }

  const DeviceArray<unsigned char> others(2 * gpu::cache_bytes());
  for (engine::KernelTime& kernel : found) {
    const ChosenLaunches only(stream_, [&](const LaunchShape& shape) { return kernel.name == shape.kernel; });
    std::optional<gpu::Graph> recorded;
    if (!stream_.waits()) recorded.emplace(stream_, step);
    const auto run = [&] { recorded ? recorded->launch(stream_) : step(); };
    run();
    for (std::size_t i = 0; i < repetitions; ++i) {
      gpu::clear(others.data(), others.bytes(), stream_);
      kernel.seconds.push_back(seconds_of(stream_, run));
    }
  }
  return found;
}

}  // namespace fs::cuda::FS_GPU_BUILD

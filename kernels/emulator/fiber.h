#pragma once
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <functional>

#include "emulator/sanitizers.h"

namespace fs::gpu::emulator {

/// A stack of its own on which jobs run one after another, each of them able to pause in the middle. All
/// fibers and their caller share one OS thread.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Starts a job; returns when it pauses or ends. The job must not let exceptions out.
  void start(const std::function<void()>& job);
  /// Continues a paused job; returns when it pauses again or ends.
  void resume();
  /// From inside a job: back to whoever started or resumed it.
  static void pause();
  bool busy() const { return job_ != nullptr; }

 private:
  void enter();
  void leave(bool for_good);
  boost::context::fiber run(boost::context::fiber&& caller);

  boost::context::protected_fixedsize_stack allocator_;
  boost::context::stack_context stack_;
  boost::context::fiber fiber_, caller_;
  const std::function<void()>* job_ = nullptr;
  bool ending_ = false;
  // Of the caller, for the sanitizers.
  [[maybe_unused]] const void* caller_stack_ = nullptr;
  [[maybe_unused]] std::size_t caller_stack_size_ = 0;
  [[maybe_unused]] void* own_tsan_ = nullptr;
  [[maybe_unused]] void* caller_tsan_ = nullptr;
};

}  // namespace fs::gpu::emulator

#include "emulator/fiber.h"

#include <utility>

namespace fs::gpu::emulator {
namespace {

/// A CUDA thread's stack is small; sanitizers make frames several times larger.
constexpr std::size_t stack_bytes = asan || tsan ? 256U << 10U : 64U << 10U;

/// Tops of stacks at the same offset of their pages would share a few cache sets: every fiber shifts its own.
std::size_t next_shift() {
  static std::size_t turn = 0;
  return turn++ % 61 * 192;
}

Fiber* running = nullptr;

}  // namespace

Fiber::Fiber() : allocator_(stack_bytes), stack_(allocator_.allocate()) {
  const std::size_t shift = next_shift();
  char* const top = static_cast<char*>(stack_.sp) - shift;
  // The fiber must not free the stack itself: a sanitizer may still look at it.
  struct Keep {
    void deallocate(boost::context::stack_context&) noexcept {}
  };
  fiber_ = boost::context::fiber(std::allocator_arg,
                                 boost::context::preallocated(top, stack_.size - shift, stack_), Keep{},
                                 [this](boost::context::fiber&& caller) { return run(std::move(caller)); });
#if FS_EMULATOR_TSAN
  own_tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  ending_ = true;
  enter();
#if FS_EMULATOR_TSAN
  __tsan_destroy_fiber(own_tsan_);
#endif
  unpoison(static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
  allocator_.deallocate(stack_);
}

void Fiber::start(const std::function<void()>& job) {
  job_ = &job;
  enter();
}

void Fiber::resume() { enter(); }

void Fiber::pause() { running->leave(false); }

/// Caller → fiber, and back again.
void Fiber::enter() {
  Fiber* const outer = std::exchange(running, this);
#if FS_EMULATOR_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
#endif
#if FS_EMULATOR_TSAN
  caller_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_tsan_, 1);  // 1: a switch orders nothing
#endif
  fiber_ = std::move(fiber_).resume();
#if FS_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  running = outer;
}

/// Fiber → caller. Returns when the fiber is entered again.
void Fiber::leave([[maybe_unused]] bool for_good) {
#if FS_EMULATOR_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, caller_stack_, caller_stack_size_);
#endif
#if FS_EMULATOR_TSAN
  __tsan_switch_to_fiber(caller_tsan_, 1);
#endif
  if (for_good) return;
  caller_ = std::move(caller_).resume();
#if FS_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, &caller_stack_, &caller_stack_size_);
#endif
}

boost::context::fiber Fiber::run(boost::context::fiber&& caller) {
#if FS_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &caller_stack_, &caller_stack_size_);
#endif
  caller_ = std::move(caller);
  while (!ending_) {
    (*job_)();
    job_ = nullptr;
    leave(false);
  }
  leave(true);
  return std::move(caller_);
}

}  // namespace fs::gpu::emulator

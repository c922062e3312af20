#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

namespace fs::gpu::emulator {

/// The asynchronous copies (cp.async) of one thread. The data arrives only when the thread waits for it;
/// until then the destination holds NaN, so that a kernel that does not wait computes with NaN.
class PendingCopies {
 public:
  /// 16 bytes, both ends aligned to 16; zeros where `valid` is false (`from` is then not read).
  void copy16(void* to, const void* from, bool valid);
  void commit();
  /// Waits until at most `groups` committed groups are in flight.
  void wait(std::size_t groups);
  bool empty() const {
    return open_.empty() &&
           std::all_of(groups_.begin(), groups_.end(), [](const Group& g) { return g.empty(); });
  }
  void clear() {
    open_.clear();
    groups_.clear();
  }

 private:
  struct Copy {
    void* to;
    unsigned char bytes[16];
  };
  using Group = std::vector<Copy>;
  Group open_;
  std::deque<Group> groups_;
};

}  // namespace fs::gpu::emulator

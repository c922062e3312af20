#pragma once
#include <cstddef>
#include <memory>
#include <new>

namespace fs::cpu {

/// Floats that start on a cache line. Not initialised: large ones take memory only as they are written.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(std::size_t size)
      : data_(static_cast<float*>(::operator new(size * sizeof(float), alignment))), size_(size) {}

  float* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  /// Makes room for `size` floats; what it held is lost if it has to grow.
  void reserve(std::size_t size) {
    if (size > size_) *this = AlignedFloats(size);
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(float* data) const { ::operator delete(data, alignment); }
  };
  std::unique_ptr<float, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace fs::cpu

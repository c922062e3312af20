#pragma once
#include <cstddef>
#include <memory>
#include <new>

namespace fs::cpu {

/// An array that starts on a cache line. Not initialised: a large one takes memory only as it is written.
template <class T>
class Aligned {
 public:
  Aligned() = default;
  explicit Aligned(std::size_t size)
      : data_(static_cast<T*>(::operator new(size * sizeof(T), alignment))), size_(size) {}

  T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  /// Makes room for `size` elements; what it held is lost if it has to grow.
  void reserve(std::size_t size) {
    if (size > size_) *this = Aligned(size);
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(T* data) const { ::operator delete(data, alignment); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

using AlignedFloats = Aligned<float>;
using AlignedBytes = Aligned<std::byte>;

}  // namespace fs::cpu

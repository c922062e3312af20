#pragma once

// Rows at a stride that is known only at run time, for loops over all of them at once; included behind a
// vector header (avx2.h, avx512.h). Everything has internal linkage (kernels.h says why).
namespace fs::cpu {
namespace {

/// M rows `stride` floats from each other. Every fourth has a pointer; the others are a processor's address
/// of pointer + {1, 2} · stride or pointer + 3 · stride: two registers more for all of them. Left to itself
/// the compiler forms the address of every row and offset before a loop, keeps them in memory and reads them
/// back one by one.
template <int M>
class StridedRows {
 public:
  StridedRows(const float* first, size_t stride) : one_(stride), three_(3 * stride) {
    for (size_t i = 0; i < pointers; ++i) pointer_[i] = first + 4 * i * stride;
  }
  /// To be called at the top of the loop: forgets what is known of the addresses.
  void renew() {
    FS_UNROLL for (auto& pointer : pointer_) asm("" : "+r"(pointer));
    asm("" : "+r"(one_), "+r"(three_));
  }
  const float* row(size_t m) const {
    const float* const pointer = pointer_[m / 4];
    return m % 4 == 0   ? pointer
           : m % 4 == 1 ? pointer + one_
           : m % 4 == 2 ? pointer + 2 * one_
                        : pointer + three_;
  }
  void advance(size_t floats) { FS_UNROLL for (auto& pointer : pointer_) pointer += floats; }

 private:
  static constexpr size_t pointers = (M + 3) / 4;
  const float* pointer_[pointers];
  size_t one_, three_;
};

}  // namespace
}  // namespace fs::cpu

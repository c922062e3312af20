#pragma once
#include <cstddef>
#include <optional>

namespace fs {

/// a · b, or nothing on overflow. Sizes that come from files go through these before they are used.
inline std::optional<std::size_t> checked_mul(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// a + b, or nothing on overflow.
inline std::optional<std::size_t> checked_add(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

}  // namespace fs

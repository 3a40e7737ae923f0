// Arithmetic on numbers that came out of a file: nothing wraps, std::nullopt says that the result does not
// fit.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace sluice::formats {

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::nullopt : std::optional(sum);
}

inline std::optional<uint64_t> checked_multiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional(product);
}

// REQUIRES: alignment is a power of two.
inline std::optional<uint64_t> checked_align(uint64_t value, uint64_t alignment) {
  const std::optional<uint64_t> sum = checked_add(value, alignment - 1);
  return sum ? std::optional(*sum & ~(alignment - 1)) : std::nullopt;
}

// Number of elements, where the product of the dimensions other than 0 is below 2^63, so that strides fit
// too.
inline std::optional<int64_t> checked_elements(std::span<const int64_t> shape) {
  int64_t product = 1;
  bool none = false;
  for (const int64_t extent : shape) {
    none = none || extent == 0;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  return none ? 0 : product;
}

}  // namespace sluice::formats

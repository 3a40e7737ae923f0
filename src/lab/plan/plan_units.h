// Numbers of a plan for people.
#pragma once

#include <fmt/format.h>

#include <string>

#include "lab/roofline.h"

namespace sluice::lab {

// "1.53 ms"
inline std::string time_text(double seconds) {
  if (seconds >= 100) return fmt::format("{:.0f} s", seconds);
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

// "16.1 GB", decimal
inline std::string size_text(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.3g} TB", bytes / 1e12);
  if (bytes >= 1e9) return fmt::format("{:.3g} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.3g} MB", bytes / 1e6);
  return fmt::format("{:.3g} kB", bytes / 1e3);
}

inline const char* bound_text(Bound bound) {
  return bound == Bound::Memory ? "memory" : "compute";
}

// "802", "11,650", "3.12 million", "8.03 billion": a number that people read.
inline std::string count_text(double value) {
  if (value >= 1e9) return fmt::format("{:.3g} billion", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.3g} million", value / 1e6);
  if (value < 100) return fmt::format("{:.3g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  if (digits.size() > 3) digits.insert(digits.size() - 3, ",");
  return digits;
}

}  // namespace sluice::lab

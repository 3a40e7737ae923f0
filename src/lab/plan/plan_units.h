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

}  // namespace sluice::lab

#include "cli/format.h"

#include <fmt/format.h>

#include <array>

namespace sluice::cli {

namespace {

std::string scaled(int64_t value, const std::array<const char*, 5>& units) {
  double number = static_cast<double>(value);
  size_t unit = 0;
  while (number >= 1000.0 && unit + 1 < units.size()) {
    number /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}{}", value, units[0]) : fmt::format("{:.1f}{}", number, units[unit]);
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  return scaled(bytes, {" B", " kB", " MB", " GB", " TB"});
}
std::string count_text(int64_t count) {
  return scaled(count, {"", " k", " M", " G", " T"});
}

}  // namespace sluice::cli

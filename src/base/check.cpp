#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace sluice::detail {

void check_failed(const char* file, int line, const char* expression, const std::string& sides) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, expression, sides.empty() ? "" : ": ",
               sides.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace sluice::detail

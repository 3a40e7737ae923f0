// Weights in panels where memory ends.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "tests/parity/harness.h"

namespace sluice::parity {
namespace {

using kernels::Weight;

int64_t mapped_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

void limit_memory(int64_t bytes) {
  const auto most = static_cast<rlim_t>(bytes);
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_AS, &limit);
}

// Two parts of which one region of panels holds one: the process may map one and no more.
bool is_read_where_it_is_said() {
  constexpr int64_t kRows = 16384, kCols = 8192, kRegion = int64_t{258} << 20, kSpare = int64_t{32} << 20;
  const auto bytes = static_cast<size_t>(kRows * row_bytes(DType::Q8_0, kCols));
  void* zeros = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const TensorView part = TensorView::contiguous(zeros, DType::Q8_0, {kRows, kCols});
  const auto backends = cpu_backends(1);
  limit_memory(mapped_bytes() + kRegion + kSpare);
  const Weight prepared = backends.back()->prepare({.parts = {part, part}, .rows = 2 * kRows, .cols = kCols});
  return prepared.packed_whole || (prepared.packed == nullptr && kernels::reads(prepared, zeros));
}

}  // namespace

// A part that lies in no panels is read as it is stored, so that its owner must know.
TEST(PanelMemory, TakesAllPartsOrNone) {
  if (mapped_bytes() > int64_t{1} << 40) GTEST_SKIP() << "a sanitizer maps more than any limit";
  EXPECT_EXIT(::_exit(is_read_where_it_is_said() ? 0 : 1), testing::ExitedWithCode(0), "");
}

}  // namespace sluice::parity

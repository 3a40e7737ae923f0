#include "base/system/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A kernel that says what a test wants.
class MemoryRoomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) / ("memory-" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
    write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
    write("proc/self/statm", "1000 500 1 1 0 1 0\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  MemoryRoom room(int64_t mapped = 0) const {
    return memory_room(mapped, {(root_ / "proc").string(), (root_ / "cgroup").string()});
  }
  void v2(const std::string& folder, const std::string& limit, int64_t used, int64_t file) {
    write("cgroup" + folder + "/memory.max", limit + "\n");
    write("cgroup" + folder + "/memory.current", std::to_string(used) + "\n");
    write("cgroup" + folder + "/memory.stat", "anon 5\nfile " + std::to_string(file) + "\n");
  }

  std::filesystem::path root_;
};

TEST_F(MemoryRoomTest, IsWhatTheMachineHasLeft) {
  EXPECT_EQ(room().bytes, 4096 * kMiB);
  EXPECT_EQ(room(96 * kMiB).bytes, 4000 * kMiB);
  EXPECT_EQ(room().limit, "the machine has 4.0 GiB available");
}

TEST_F(MemoryRoomTest, IsBoundByTheCgroupAndThoseAroundIt) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  v2("/outer/inner", "max", 100 * kMiB, 0);
  v2("/outer", std::to_string(1024 * kMiB), 300 * kMiB, 100 * kMiB);
  EXPECT_EQ(room().bytes, 824 * kMiB);  // pages of files are given up
  EXPECT_EQ(room(50 * kMiB).bytes, 774 * kMiB);
  EXPECT_EQ(room().limit, "the memory limit of its cgroup is 1.0 GiB");
  v2("/outer/inner", std::to_string(256 * kMiB), 100 * kMiB, 0);
  EXPECT_EQ(room().bytes, 156 * kMiB);
  EXPECT_EQ(room(500 * kMiB).bytes, 0);
}

TEST_F(MemoryRoomTest, SeesTheRootOfAContainer) {
  write("proc/self/cgroup", "0::/a/path/of/the/host\n");
  v2("", std::to_string(512 * kMiB), 12 * kMiB, 0);
  EXPECT_EQ(room().bytes, 500 * kMiB);
}

TEST_F(MemoryRoomTest, ReadsTheFirstVersionToo) {
  write("proc/self/cgroup", "5:cpu,memory:/job\n0::/\n");
  write("cgroup/memory/job/memory.limit_in_bytes", std::to_string(1000 * kMiB));
  write("cgroup/memory/job/memory.usage_in_bytes", std::to_string(700 * kMiB));
  write("cgroup/memory/job/memory.stat", "cache 1\ntotal_cache " + std::to_string(200 * kMiB) + "\n");
  EXPECT_EQ(room().bytes, 500 * kMiB);
  write("cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712");  // none
  EXPECT_EQ(room().bytes, 4096 * kMiB);
}

// The limit is set a gibibyte above what the process has, which under a sanitizer is a lot.
TEST_F(MemoryRoomTest, IsBoundByTheAddressSpace) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  write("proc/self/statm", std::to_string(pages) + " 500 1 1 0 1 0\n");
  const auto said = [&] {
    const auto space = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + 1024 * kMiB);
    const rlimit limit{space, space};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    const MemoryRoom left = room();
    _exit(left.bytes == 1024 * kMiB && left.limit.starts_with("the limit on its address space is ") ? 0 : 2);
  };
  EXPECT_EXIT(said(), ::testing::ExitedWithCode(0), "");
}

TEST(MemoryRoom, OfThisProcessIsAPartOfTheMachines) {
  const int64_t all = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  EXPECT_GT(memory_room().bytes, 0);
  EXPECT_LE(memory_room().bytes, all);
}

}  // namespace
}  // namespace sluice

// How many threads a machine is worth: physical cores, NUMA nodes and quotas, as a made-up system describes them.
#include "base/system/cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

namespace sluice {
namespace {

class Cores : public testing::Test {
 protected:
  Cores() : root_(std::filesystem::path(testing::TempDir()) / "cores") {
    std::filesystem::remove_all(root_);
    sources_ = {.cpus = (root_ / "cpu").string(),
                .nodes = (root_ / "node").string(),
                .cgroups = (root_ / "cgroup").string(),
                .own_cgroup = (root_ / "own").string()};
  }
  ~Cores() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  // Processor i shares its core with i + cores.
  void write_siblings(int cores) {
    for (int i = 0; i < 2 * cores; ++i)
      write("cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list",
            std::to_string(i % cores) + "," + std::to_string(i % cores + cores));
  }
  ComputeCores choose(int processors) {
    std::vector<int> allowed(static_cast<size_t>(processors));
    std::iota(allowed.begin(), allowed.end(), 0);
    return compute_cores(allowed, sources_);
  }

  std::filesystem::path root_;
  CoreSources sources_;
};

TEST_F(Cores, WhereNothingIsSaidEveryProcessorCounts) {
  EXPECT_EQ(choose(6).threads, 6);
  EXPECT_TRUE(choose(6).stay_on.empty());
  EXPECT_EQ(choose(0).threads, 1);
}

TEST_F(Cores, ProcessorsOfOneCoreCountOnce) {
  write_siblings(4);
  EXPECT_EQ(choose(8).threads, 4);
  // Of two cores both processors are allowed, of a third one.
  EXPECT_EQ(compute_cores({0, 1, 4, 5, 7}, sources_).threads, 3);
}

TEST_F(Cores, ThreadsStayOnTheNodeWithMostCores) {
  write_siblings(6);
  write("node/online", "0-1,3");
  write("node/node0/cpulist", "0-1,6-7");
  write("node/node1/cpulist", "2-4,8-10");
  write("node/node3/cpulist", "5,11");
  EXPECT_EQ(choose(12).threads, 3);
  EXPECT_EQ(choose(12).stay_on, (std::vector{2, 3, 4, 8, 9, 10}));
  // A mask within one node leaves nothing to choose.
  const ComputeCores bound = compute_cores({0, 6}, sources_);
  EXPECT_EQ(bound.threads, 1);
  EXPECT_TRUE(bound.stay_on.empty());
}

TEST_F(Cores, AQuotaLimitsThreads) {
  write("own", "0::/a/b");
  write("cgroup/a/cpu.max", "350000 100000");
  write("cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(choose(8).threads, 3);
  write("cgroup/a/b/cpu.max", "50000 100000");
  EXPECT_EQ(choose(8).threads, 1);
  write("cgroup/a/b/cpu.max", "damaged");
  EXPECT_EQ(choose(8).threads, 3);
}

TEST_F(Cores, AQuotaOfVersionOneLimitsThreads) {
  write("own", "3:memory:/m\n2:cpu,cpuacct:/docker/x");
  write("cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1");
  write("cgroup/cpu/docker/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(choose(8).threads, 8);
  // In a container the group is the root of what it sees.
  write("cgroup/cpu/cpu.cfs_quota_us", "400000");
  write("cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(choose(8).threads, 4);
}

TEST_F(Cores, ThisMachineHasSome) {
  EXPECT_GE(compute_cores().threads, 1);
}

}  // namespace
}  // namespace sluice

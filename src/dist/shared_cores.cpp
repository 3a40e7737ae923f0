#include "dist/shared_cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

namespace sluice::dist {

namespace {

bool is_crowded(std::span<const RankCores> ranks, const std::array<char, 64>& host) {
  std::array<uint64_t, 16> cores{};
  int64_t threads = 0, count = 0;
  for (const RankCores& rank : ranks) {
    if (rank.host != host) continue;
    threads += rank.threads;
    for (size_t i = 0; i < cores.size(); ++i) cores[i] |= rank.cores[i];
  }
  for (const uint64_t word : cores) count += std::popcount(word);
  return threads > count;
}

}  // namespace

RankCores own_cores(int threads) {
  RankCores own{.threads = threads};
  gethostname(own.host.data(), own.host.size() - 1);
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  constexpr size_t kWordBits = 64;
  for (size_t core = 0; core < own.cores.size() * kWordBits; ++core)
    if (CPU_ISSET(core, &set)) own.cores[core / kWordBits] |= uint64_t{1} << core % kWordBits;
  return own;
}

std::vector<int> core_sharers(std::span<const RankCores> ranks) {
  std::vector<int> numbers;
  int next = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto first = std::find_if(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(i),
                                    [&](const RankCores& other) { return other.host == ranks[i].host; });
    const auto index = static_cast<size_t>(first - ranks.begin());
    numbers.push_back(index < i && is_crowded(ranks, ranks[i].host) ? numbers[index] : next++);
  }
  return numbers;
}

}  // namespace sluice::dist

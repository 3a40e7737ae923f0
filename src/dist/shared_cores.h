// Which ranks compute on the same cores: they take turns, where others compute at the same time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::dist {

// What a rank computes with, as it tells the others.
struct RankCores {
  std::array<char, 64> host{};
  std::array<uint64_t, 16> cores{};  // of the host that it may run on, a bit each
  int32_t threads = 1;
};

// Of the calling process.
RankCores own_cores(int threads);

// Of every rank a number, from 0 on. Those of a host whose ranks have more threads together than cores that they may run on
// have the same one, every other rank has one of its own.
std::vector<int> core_sharers(std::span<const RankCores> ranks);

}  // namespace sluice::dist

// A copy of one KV block from one place to another: ids only.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace sluice::request {

enum class Tier : uint8_t { Device, Host, Disk };
inline constexpr int kTiers = 3;

inline constexpr BlockId kNoBlock{-1};  // in tables: given back, never read

struct Place {
  Tier tier = Tier::Device;
  BlockId block = kNoBlock;
  friend bool operator==(const Place&, const Place&) = default;
};

struct BlockMove {
  int group = 0;
  Place from, to;
  friend bool operator==(const BlockMove&, const BlockMove&) = default;
};

}  // namespace sluice::request

// Which tile of a grouped GEMM is which entries and rows: how many entries a group has is known on the device only, so every
// block makes a list of the groups that have some, and finds its tiles in it.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/device.cuh"

namespace sluice::kernels::cuda {

inline constexpr int kMostGroups = 1024;

// In shared memory. Groups without entries are left out.
struct GroupList {
  int count;
  int begin[kMostGroups + 1];       // the first entry of each, then the end of the last
  int first_tile[kMostGroups + 1];  // then the number of tiles
  uint16_t group[kMostGroups];

  // By one warp. bounds: [groups + 1] entries with which groups begin, in shared memory.
  __device__ __forceinline__ void fill(const int* bounds, int groups, int tile_entries, int row_tiles) {
    const int lane = threadIdx.x % 32;
    int found = 0, tiles = 0;
    for (int base = 0; base < groups; base += 32) {
      const int g = base + lane;
      const int entries = g < groups ? bounds[g + 1] - bounds[g] : 0;
      const int own = (entries + tile_entries - 1) / tile_entries * row_tiles;
      const unsigned live = __ballot_sync(0xffffffffu, entries > 0);
      int before = own;
#pragma unroll
      for (int o = 1; o < 32; o *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, before, o);
        if (lane >= o) before += other;
      }
      if (entries > 0) {
        const int at = found + __popc(live & ((1u << lane) - 1u));
        begin[at] = bounds[g];
        first_tile[at] = tiles + before - own;
        group[at] = static_cast<uint16_t>(g);
      }
      found += __popc(live);
      tiles += __shfl_sync(0xffffffffu, before, 31);
    }
    if (lane != 0) return;
    count = found;
    begin[found] = bounds[groups];
    first_tile[found] = tiles;
  }
};

// A tile: `entries` of group number `place` of the list from `entry` on, of which fewer may be left, and rows from `row` on. Tiles
// of a group come one after the other, those with the same rows together, so that the L2 holds what they share.
struct GroupTile {
  int place = 0, entry = 0, end = 0, row = 0;

  // Tiles are asked for in rising order. False: there are fewer.
  __device__ __forceinline__ bool find(const GroupList& list, int tile, int entries, int rows) {
    if (tile >= list.first_tile[list.count]) return false;
    while (tile >= list.first_tile[place + 1]) ++place;
    const int begin = list.begin[place], within = tile - list.first_tile[place];
    end = list.begin[place + 1];
    const int together = (end - begin + entries - 1) / entries;
    entry = begin + within % together * entries;
    row = within / together * rows;
    return true;
  }
};

// Entries with which groups begin, by all threads of a block: where `begin` is null, every group has as many.
__device__ __forceinline__ void copy_bounds(int* bounds, const int32_t* begin, int groups, int entries) {
  for (int i = static_cast<int>(threadIdx.x); i <= groups; i += static_cast<int>(blockDim.x))
    bounds[i] = begin != nullptr ? __ldcg(begin + i) : i * entries;
}

// A tensor map in device memory: what was written there by a copy is seen by the TMA unit, which has it on its way.
__device__ __forceinline__ void acquire_map(const void* map) {
  asm volatile(
      "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;\n"
      "prefetch.tensormap [%0];" ::"l"(map)
      : "memory");
}

}  // namespace sluice::kernels::cuda

// The shapes of AMX tiles. Included by the files that are compiled for AMX only.
#pragma once

#include <cstdint>

namespace sluice::kernels::cpu {
namespace {

// The layout that LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  // For this thread, until TILERELEASE. Not _tile_loadconfig: GCC 12 takes it to read 8 bytes only and drops the stores to the
  // rest.
  void load() const { asm volatile("ldtilecfg %0" : : "m"(*this)); }
};

}  // namespace
}  // namespace sluice::kernels::cpu

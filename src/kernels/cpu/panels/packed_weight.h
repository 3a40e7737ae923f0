// A weight of which some parts lie in panels, and the memory that panels lie in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/weight.h"

namespace sluice::kernels::cpu {

// Behind Weight::packed of the CPU back-end. The parts stay as they are stored: rows are looked up there.
struct PackedWeight {
  std::vector<const uint8_t*> panels;  // per part; null: read as stored
  std::vector<std::shared_ptr<const void>> memory;
};

// Hands out memory from large regions in huge pages where the system has them. A region lives as long as anything in it.
class PanelMemory {
 public:
  // Aligned to 64 bytes; null where the system has no more.
  std::shared_ptr<uint8_t> take(int64_t bytes);

 private:
  std::shared_ptr<uint8_t> region_;
  int64_t used_ = 0;
  int64_t size_ = 0;
};

}  // namespace sluice::kernels::cpu

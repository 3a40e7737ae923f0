// Weights from file order into panels (format.h), in plain C++.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels/format.h"
#include "tensor/dtype.h"

namespace sluice::kernels::cpu {

// Rows of one stored tensor.
struct StoredRows {
  DType type;           // one with panels in the layout
  const uint8_t* data;  // row 0; rows follow each other
  int64_t rows;
  int64_t cols;  // a multiple of the type's block
};

// One panel, of rows [16 panel, 16 panel + 16); `to` has room for panel_bytes().
void pack_panel(uint8_t* to, const StoredRows& from, int64_t panel, PanelLayout layout);

}  // namespace sluice::kernels::cpu

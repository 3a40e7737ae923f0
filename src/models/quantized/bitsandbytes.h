// Matrices in bitsandbytes' 4-bit types: nf4 and fp4, with scales of scales or without.
#pragma once

#include <string>

#include "base/result.h"
#include "formats/tensor_store.h"
#include "tensor/tensor.h"

namespace sluice::models {

// `weight` names the values, U8 [rows * cols / 2, 1] or the same bytes in a type of floats; what belongs to them has longer
// names: absmax, quant_map, quant_state.bitsandbytes__nf4, and nested_absmax and nested_quant_map. As NF4 or FP4; as F16 or F32
// where blocks or rows are no whole number of 32 columns, the file has another map, or scales do not fit f16.
Result<HostTensor> read_bitsandbytes_4bit(const formats::TensorStore& store, const std::string& weight);

}  // namespace sluice::models

// A matrix that a Hugging Face folder keeps as several tensors (values, scales, zero points, orders) as one tensor that kernels
// read: GPTQ, AWQ, compressed-tensors, Model Optimizer's NVFP4, bitsandbytes.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "formats/tensor_store.h"
#include "models/quantized/grouped.h"
#include "models/quantized/quantization.h"

namespace sluice::models {

// Whether the store has a matrix of that stem, in any form.
bool has_matrix(const formats::TensorStore& store, const std::string& stem);

// Of a module that is quantised: an error where the config says that it is not, or its inputs would have to be scaled.
Status check_quantized(const formats::TensorStore& store, const Quantization& quantization,
                       const std::string& stem);

// The matrix of a module; nothing where the store has it as a plain tensor, or not at all. An error names the tensor, its shape
// and what the config says.
Result<std::optional<QuantizedMatrix>> read_quantized(const formats::TensorStore& store,
                                                      const Quantization& quantization,
                                                      const std::string& stem);

}  // namespace sluice::models

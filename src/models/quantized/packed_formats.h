// The matrix of a packed module in each format, as one tensor that kernels read. Errors name the tensor and its shape.
#pragma once

#include <string_view>
#include <vector>

#include "models/quantized/grouped.h"
#include "models/quantized/packed_module.h"
#include "tensor/tensor.h"

namespace sluice::models {

// qweight I32 [cols * bits / 32, rows], the first column in the lowest bits; of three bits a field may lie in two words.
Result<QuantizedMatrix> read_gptq(const PackedModule& module);

// qweight I32 [cols, rows / 8], whose nibbles are rows 0, 2, 4, 6, 1, 3, 5, 7.
Result<QuantizedMatrix> read_awq(const PackedModule& module);

// weight_packed I32 [rows, cols * bits / 32], rounded up; weight_zero_point I32 [rows * bits / 32, groups], or I8 [1] of one
// scale for all.
Result<QuantizedMatrix> read_packed(const PackedModule& module, const QuantGroup& group);

// weight I8 [rows, cols] with weight_scale, and weight_zero_point I8 where it is not symmetric.
Result<QuantizedMatrix> read_int8(const PackedModule& module, const QuantGroup& group);
// The same with a scale for each row.
Result<QuantizedMatrix> read_int8(const PackedModule& module, std::vector<float> row_scales);

// U8 [rows, cols / 2] of e2m1 with e4m3 scales [rows, cols / 16], times `factor`.
Result<HostTensor> read_nvfp4(const PackedModule& module, std::string_view values, float factor);

// weight_packed U8 [rows, cols / 2] with scales U8 [rows, cols / 32], powers of two.
Result<HostTensor> read_mxfp4(const PackedModule& module);

}  // namespace sluice::models

// Layouts of quantised matrices in folders of safetensors, and the quantization_config that names them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"
#include "formats/safetensors/safetensors_write.h"
#include "tensor/tensor.h"

namespace sluice::formats {

enum class FolderFormat : uint8_t {
  Fp8,    // compressed-tensors, float-quantized: F8_E4M3 with a scale for each row; activations in 8 bits too
  Int8,   // compressed-tensors, int-quantized: I8 with a scale for each row
  W4A16,  // compressed-tensors, pack-quantized: 4 bits, symmetric
  Awq,    // AWQ's layout `gemm`: 4 bits with zero points
};

struct FolderLayout {
  FolderFormat format = FolderFormat::Fp8;
  int group = 128;  // columns that share a scale, of four bits

  bool grouped() const { return format == FolderFormat::W4A16 || format == FolderFormat::Awq; }
  // Whether a matrix [rows, cols] can be kept so.
  bool holds(const TensorView& weight) const;
};

// `ignore`: modules that keep their type.
json::object quantization_config(const FolderLayout& layout, const std::vector<std::string>& ignore);

// What X.weight becomes. `weight` is F32, F16 or BF16 and outlives the group, as the pool does; importance() gives what errors of
// its columns count, or nothing (tensor/quantize.h).
// REQUIRES: layout.holds(weight)
WrittenGroup quantized_module(const FolderLayout& layout, const std::string& module, TensorView weight,
                              std::function<std::vector<float>()> importance, ThreadPool& pool);

// A tensor as it is.
WrittenGroup copied_tensor(const std::string& name, TensorView tensor);

}  // namespace sluice::formats

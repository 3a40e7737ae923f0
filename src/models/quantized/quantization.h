// How a Hugging Face folder says its weights are quantised: quantization_config of config.json, or hf_quant_config.json.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "models/quantized/module_target.h"

namespace sluice::models {

// Weights of the modules that `targets` name.
struct QuantGroup {
  enum class Format : uint8_t { Packed, Int, Float, Nvfp4, Mxfp4 };
  Format format = Format::Packed;
  std::vector<ModuleTarget> targets;
  int bits = 4;
  int group_size = 0;  // columns that share a scale; 0: a row, or all of the matrix
  bool symmetric = true;
};

struct Quantization {
  enum class Method : uint8_t { None, Gptq, Awq, CompressedTensors, Fp8, Modelopt, Bitsandbytes, Other };
  Method method = Method::None;
  int bits = 4;
  int group_size = 0;                  // 0: one group for all columns
  bool zeros_less_one = false;         // GPTQ's first version stores zero points minus one
  int block_rows = 0, block_cols = 0;  // FP8: the tile that shares a scale; 0: not said
  std::vector<QuantGroup> groups;      // CompressedTensors
  std::vector<ModuleTarget> ignore;    // modules that are not quantised

  // Errors of these: those of ModuleTarget::names.
  Result<bool> ignores(std::string_view module) const;
  // The first group whose targets name the module, else the first that names a class of modules; null: none.
  Result<const QuantGroup*> group_of(std::string_view module) const;
  // Columns of a module that share a scale, by its group; 0: not said.
  Result<int> group_columns(std::string_view module) const;
};

// From the whole config; a config without quantization gives Method::None. An error names the key, its value and what is known.
Result<Quantization> read_quantization(const json::object& config);

// The same from hf_quant_config.json of NVIDIA's Model Optimizer.
Result<Quantization> read_modelopt(const json::object& file);

}  // namespace sluice::models

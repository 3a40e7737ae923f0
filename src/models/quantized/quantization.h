// How a Hugging Face folder says its weights are quantised: quantization_config of config.json, or a file beside it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "models/quantized/module_target.h"

namespace sluice::models {

// The part of a matrix that shares one scale.
struct ScaleTile {
  static constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();  // all rows, or all columns
  int64_t rows = 0, cols = 0;                                             // 0: not said
  std::string said;                                                       // key and value, for messages
};

// Weights of the modules that `targets` name.
struct QuantGroup {
  enum class Format : uint8_t { Packed, Int, Float, Nvfp4, Mxfp4 };
  std::optional<Format> format;  // nothing: told by a module's tensors
  std::vector<ModuleTarget> targets;
  int bits = 4;
  int group_size = 0;  // columns that share a scale; 0: a row, or all of the matrix
  bool symmetric = true;
  bool ordered = false;  // columns lie in any order, which weight_g_idx gives
  ScaleTile tile;
};

// How one module's integers are packed.
struct IntegerPacking {
  int bits = 4;
  int group_size = 0;    // 0: one group for all columns
  bool ordered = false;  // g_idx gives each column's group
};

// What holds for some modules in the place of what holds for all.
struct ModuleOverride {
  ModuleTarget target;
  bool excluded = false;  // the module is not quantised
  IntegerPacking packing;
};

struct Quantization {
  enum class Method : uint8_t { None, Gptq, Awq, CompressedTensors, Fp8, Modelopt, Bitsandbytes, Other };
  Method method = Method::None;
  int bits = 4;
  int group_size = 0;                     // 0: one group for all columns
  bool zeros_less_one = false;            // GPTQ's first version stores zero points minus one
  bool ordered = false;                   // GPTQ: desc_act
  bool has_zeros = true;                  // AWQ: zero_point
  int block_rows = 0, block_cols = 0;     // FP8: the tile that shares a scale; 0: not said
  std::vector<QuantGroup> groups;         // CompressedTensors
  std::vector<ModuleTarget> ignore;       // modules that are not quantised
  std::vector<ModuleOverride> overrides;  // the first that names a module holds

  // Of the following, `names` are those of one module under all prefixes that exports differ in. Errors: those of
  // ModuleTarget::names.
  using Names = std::span<const std::string>;
  Result<bool> ignores(Names names) const;
  // The group that names the module, else that whose pattern matches, else that of its class; null: none.
  Result<const QuantGroup*> group_of(Names names) const;
  Result<IntegerPacking> packing_of(Names names) const;
  Result<ScaleTile> tile_of(Names names) const;
};

// From the whole config; a config without quantization gives Method::None. An error names the key, its value and what is known.
Result<Quantization> read_quantization(const json::object& config);

// From a file of its own: quantize_config.json of GPTQ, quant_config.json of AWQ, which may leave their method out.
Result<Quantization> read_quantization_file(const json::object& file, std::string_view method);

// The same from hf_quant_config.json of NVIDIA's Model Optimizer.
Result<Quantization> read_modelopt(const json::object& file);

}  // namespace sluice::models

#include "cli/quantize/recipes.h"

#include <algorithm>
#include <cstdio>

namespace sluice::cli {

namespace {

constexpr Recipe kRecipes[] = {
    {"f32", DType::F32, 0, Recipe::Mix::None},         {"f16", DType::F16, 1, Recipe::Mix::None},
    {"q4_0", DType::Q4_0, 2, Recipe::Mix::None},       {"q4_1", DType::Q4_1, 3, Recipe::Mix::None},
    {"q8_0", DType::Q8_0, 7, Recipe::Mix::None},       {"q5_0", DType::Q5_0, 8, Recipe::Mix::None},
    {"q5_1", DType::Q5_1, 9, Recipe::Mix::None},       {"q2_k", DType::Q2_K, 10, Recipe::Mix::Medium},
    {"q3_k_s", DType::Q3_K, 11, Recipe::Mix::Small},   {"q3_k_m", DType::Q3_K, 12, Recipe::Mix::Medium},
    {"q3_k_l", DType::Q3_K, 13, Recipe::Mix::Large},   {"q4_k_s", DType::Q4_K, 14, Recipe::Mix::Small},
    {"q4_k_m", DType::Q4_K, 15, Recipe::Mix::Medium},  {"q5_k_s", DType::Q5_K, 16, Recipe::Mix::Small},
    {"q5_k_m", DType::Q5_K, 17, Recipe::Mix::Medium},  {"q6_k", DType::Q6_K, 18, Recipe::Mix::Small},
    {"iq4_nl", DType::IQ4_NL, 25, Recipe::Mix::Small}, {"iq4_xs", DType::IQ4_XS, 30, Recipe::Mix::Small},
    {"bf16", DType::BF16, 32, Recipe::Mix::None},      {"tq1_0", DType::TQ1_0, 36, Recipe::Mix::Small},
    {"tq2_0", DType::TQ2_0, 37, Recipe::Mix::Small},   {"mxfp4", DType::MXFP4, 38, Recipe::Mix::Small},
};

bool contains(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

// The number after "blk."; -1: none.
int layer_of(const std::string& name) {
  if (!name.starts_with("blk.")) return -1;
  int layer = -1;
  return std::sscanf(name.c_str(), "blk.%d.", &layer) == 1 ? layer : -1;
}

// The first and last eighths of the layers, and every third between.
bool gets_more_bits(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// Where a row is no multiple of the type's block, the nearest type whose block divides it.
DType fitting(DType type, int64_t cols) {
  if (cols % info(type).block_elements == 0) return type;
  if (cols % 32 != 0) return DType::F16;
  switch (type) {
    case DType::Q4_K:
      return DType::Q5_0;
    case DType::Q5_K:
      return DType::Q5_1;
    case DType::Q6_K:
      return DType::Q8_0;
    default:
      return DType::IQ4_NL;
  }
}

int64_t rows_of(const formats::TensorStore& tensors, std::string_view name) {
  const Result<TensorView> found = tensors.find(name);
  return found && found->rank == 2 ? found->dim(0) : 0;
}

}  // namespace

const Recipe* find_recipe(std::string_view name) {
  for (const Recipe& recipe : kRecipes)
    if (recipe.name == name) return &recipe;
  return nullptr;
}

std::string recipe_names() {
  std::string out;
  for (const Recipe& recipe : kRecipes) {
    if (!out.empty()) out += ", ";
    out += recipe.name;
  }
  return out;
}

TypeChooser::TypeChooser(const Recipe& recipe, const formats::TensorStore& tensors, bool calibrated)
    : recipe_(recipe), has_output_(tensors.contains("output.weight")), calibrated_(calibrated) {
  for (const std::string& tensor : tensors.names()) layers_ = std::max(layers_, layer_of(tensor) + 1);
  const int64_t values = rows_of(tensors, "blk.0.attn_v.weight");
  shared_values_ = values > 0 && rows_of(tensors, "blk.0.attn_q.weight") >= 4 * values;
}

// Four bits that index a table of values, and a few more for what is worth it.
DType TypeChooser::mixed_nonlinear(const std::string& name) const {
  if (contains(name, "attn_v.") && shared_values_) return DType::Q5_K;
  const bool first = layer_of(name) >= 0 && layer_of(name) < layers_ / 8;
  return contains(name, "ffn_down") && first && !calibrated_ ? DType::Q5_K : recipe_.base;
}

DType TypeChooser::mixed(const std::string& name) const {
  using Mix = Recipe::Mix;
  const DType base = recipe_.base;
  if (recipe_.mix == Mix::None) return base;
  if (name == "output.weight" || (!has_output_ && name == "token_embd.weight")) return DType::Q6_K;
  const int layer = layer_of(name);
  const bool value = contains(name, "attn_v."), down = contains(name, "ffn_down");
  const bool more = layer >= 0 && gets_more_bits(layer, layers_);
  if (base == DType::IQ4_NL || base == DType::IQ4_XS) return mixed_nonlinear(name);
  if (base == DType::Q2_K) {
    if (value) return shared_values_ ? DType::Q4_K : DType::Q3_K;
    return down || contains(name, "attn_output") ? DType::Q3_K : base;
  }
  if (contains(name, "attn_qkv") && recipe_.mix != Mix::Small)
    return base == DType::Q3_K ? DType::Q4_K : base == DType::Q4_K ? DType::Q5_K : DType::Q6_K;
  if (base == DType::Q3_K && recipe_.mix == Mix::Large)
    return value || down || contains(name, "attn_output") ? DType::Q5_K : base;
  if (base == DType::Q3_K && recipe_.mix == Mix::Medium) {
    if (value) return layer < 2 ? DType::Q5_K : DType::Q4_K;
    if (down) return layer < layers_ / 16 ? DType::Q5_K : DType::Q4_K;
    return contains(name, "attn_output") ? DType::Q4_K : base;
  }
  if ((base == DType::Q4_K || base == DType::Q5_K) && recipe_.mix == Mix::Medium)
    return (value || down) && more ? DType::Q6_K : base;
  if (base == DType::Q4_K && ((value && layer < 4) || (down && layer < layers_ / 8))) return DType::Q5_K;
  return base;
}

DType TypeChooser::operator()(const std::string& name, const TensorView& tensor) const {
  const bool plain = tensor.rank < 2 || !name.ends_with(".weight") || contains(name, "_norm") ||
                     contains(name, "ffn_gate_inp") || contains(name, "position_embd") ||
                     contains(name, "token_types") || contains(name, "ssm_") || contains(name, "shortconv");
  const bool weights = tensor.dtype != DType::I8 && tensor.dtype != DType::I32 && tensor.dtype != DType::U8;
  return plain || !weights ? tensor.dtype : fitting(mixed(name), tensor.dim(-1));
}

}  // namespace sluice::cli

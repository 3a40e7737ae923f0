#include "models/quantized/packed_module.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/loading/locate.h"
#include "tensor/blocks.h"

namespace sluice::models {

PackedModule::PackedModule(const formats::TensorStore& store, const Quantization& quantization,
                           const std::string& stem)
    : store_(store), quantization_(quantization), stem_(stem), names_(spellings(stem)) {}

std::optional<std::string> PackedModule::name(std::string_view suffix) const {
  return locate_tensor(store_, stem_, suffix);
}

Result<TensorView> PackedModule::tensor(std::string_view suffix, DType type, std::optional<int> rank) const {
  const std::optional<std::string> found = name(suffix);
  if (!found) return Error{ErrorCode::Corrupt, fmt::format("module '{}' has no tensor '{}'", stem_, suffix)};
  Result<TensorView> view = store_.find(*found);
  if (!view) return view;
  if (view->dtype != type)
    return wrong_tensor(*found, "is {}, must be {}", view->describe(), sluice::name(type));
  if (rank && view->rank != *rank)
    return wrong_tensor(*found, "is {}, must have rank {}", view->describe(), *rank);
  return view;
}

Result<std::vector<float>> PackedModule::floats(std::string_view suffix, int64_t elements) const {
  const std::optional<std::string> found = name(suffix);
  if (!found) return Error{ErrorCode::Corrupt, fmt::format("module '{}' has no tensor '{}'", stem_, suffix)};
  const Result<TensorView> view = store_.find(*found);
  if (!view) return view.error();
  const DType type = view->dtype;
  if (type != DType::F32 && type != DType::F16 && type != DType::BF16 && type != DType::F8_E4M3)
    return wrong_tensor(*found, "is {}, must hold floats", view->describe());
  if (view->elements() != elements)
    return wrong_tensor(*found, "is {}, must have {} elements", view->describe(), elements);
  std::vector<float> values(static_cast<size_t>(elements));
  dequantize_row(type, view->data, values.data(), elements);
  for (const float value : values)
    if (!std::isfinite(value)) return wrong_tensor(*found, "holds {}", value);
  return values;
}

Result<std::optional<std::pair<int64_t, int64_t>>> PackedModule::shape() const {
  const std::optional<std::string> found = name(".weight_shape");
  if (!found) return std::optional<std::pair<int64_t, int64_t>>();
  std::vector<int64_t> sides;
  if (const Result<TensorView> narrow = store_.find(*found); narrow && narrow->dtype == DType::I32) {
    std::vector<int32_t> values(static_cast<size_t>(narrow->elements()));
    std::memcpy(values.data(), narrow->data, values.size() * sizeof(int32_t));
    sides.assign(values.begin(), values.end());
  } else {
    Result<std::vector<int64_t>> wide = store_.find_integers(*found);
    if (!wide) return wide.error();
    sides = std::move(*wide);
  }
  if (sides.size() != 2 || sides[0] < 1 || sides[1] < 1)
    return wrong_tensor(*found, "has {} numbers from {}, must be the two sides of the matrix", sides.size(),
                        sides.empty() ? 0 : *std::min_element(sides.begin(), sides.end()));
  return std::optional(std::pair(sides[0], sides[1]));
}

}  // namespace sluice::models

#include "models/quantized/packed_module.h"

#include <cmath>

#include "models/loading/binder.h"
#include "tensor/blocks.h"

namespace sluice::models {

std::optional<std::string> PackedModule::name(std::string_view suffix) const {
  return locate_tensor(store_, stem_, suffix);
}

Result<TensorView> PackedModule::tensor(std::string_view suffix, DType type, int rank) const {
  const std::optional<std::string> found = name(suffix);
  if (!found) return Error{ErrorCode::Corrupt, fmt::format("module '{}' has no tensor '{}'", stem_, suffix)};
  Result<TensorView> view = store_.find(*found);
  if (!view) return view;
  if (view->dtype != type || view->rank != rank)
    return wrong_tensor(*found, "is {}, must be {} of rank {}", view->describe(), sluice::name(type), rank);
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

}  // namespace sluice::models

// The tensors of one module that a folder keeps packed, found by their suffixes.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/tensor_store.h"
#include "models/quantized/quantization.h"
#include "tensor/tensor.h"

namespace sluice::models {

template <class... Args>
Error wrong_tensor(const std::string& tensor, fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::Corrupt,
          fmt::format("tensor '{}': {}", tensor, fmt::format(format, std::forward<Args>(args)...))};
}

// Keeps references: all three outlive it.
class PackedModule {
 public:
  PackedModule(const formats::TensorStore& store, const Quantization& quantization, const std::string& stem);

  std::optional<std::string> name(std::string_view suffix) const;
  // The names that entries of quantization_config may have for it.
  const std::vector<std::string>& names() const { return names_; }
  // Of that type and rank, or of any; an error says what is there.
  Result<TensorView> tensor(std::string_view suffix, DType type, std::optional<int> rank = {}) const;
  // As floats, whatever plain type it has; [rows, groups] of any shape with so many elements.
  Result<std::vector<float>> floats(std::string_view suffix, int64_t elements) const;

  // Of weight_shape, I64 or I32 [2]; nothing where there is none.
  Result<std::optional<std::pair<int64_t, int64_t>>> shape() const;

  const Quantization& quantization() const { return quantization_; }
  const std::string& stem() const { return stem_; }

 private:
  const formats::TensorStore& store_;
  const Quantization& quantization_;
  const std::string& stem_;
  std::vector<std::string> names_;
};

}  // namespace sluice::models

// Which type each tensor of a GGUF file gets: plain types, and the mixes of llama.cpp's `_S`, `_M` and `_L`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/tensor_store.h"
#include "tensor/tensor.h"

namespace sluice::cli {

// How the types of a file are mixed. Base types with a mix have another for the output, and for values and down projections
// of some layers, as the files that people download have them.
struct Recipe {
  std::string_view name;
  DType base;
  uint32_t file_type;  // of the format
  enum class Mix : uint8_t { None, Small, Medium, Large } mix;
};

// Null: no such name.
const Recipe* find_recipe(std::string_view name);
// All names, with commas.
std::string recipe_names();

class TypeChooser {
 public:
  TypeChooser(const Recipe& recipe, const formats::TensorStore& tensors, bool calibrated);

  DType operator()(const std::string& name, const TensorView& tensor) const;

 private:
  DType mixed(const std::string& name) const;
  DType mixed_nonlinear(const std::string& name) const;

  const Recipe& recipe_;
  int layers_ = 1;
  bool has_output_ = true;
  bool calibrated_ = false;
  bool shared_values_ = false;  // four heads or more have one value head
};

}  // namespace sluice::cli

// The types of blocks that have panels, as arguments of templates. Every name is private to the file that includes this, because
// files are compiled for different levels.
#pragma once

#include "tensor/dtype.h"

namespace sluice::kernels::cpu {
namespace {

// Calls the function template with the type as its argument.
template <class Function>
void with_panel_type(DType type, Function&& function) {
  switch (type) {
    case DType::Q4_0:
      return function.template operator()<DType::Q4_0>();
    case DType::Q4_1:
      return function.template operator()<DType::Q4_1>();
    case DType::Q5_0:
      return function.template operator()<DType::Q5_0>();
    case DType::Q5_1:
      return function.template operator()<DType::Q5_1>();
    case DType::Q8_0:
      return function.template operator()<DType::Q8_0>();
    case DType::Q2_K:
      return function.template operator()<DType::Q2_K>();
    case DType::Q3_K:
      return function.template operator()<DType::Q3_K>();
    case DType::Q4_K:
      return function.template operator()<DType::Q4_K>();
    case DType::Q5_K:
      return function.template operator()<DType::Q5_K>();
    case DType::Q6_K:
      return function.template operator()<DType::Q6_K>();
    case DType::IQ4_NL:
      return function.template operator()<DType::IQ4_NL>();
    case DType::MXFP4:
      return function.template operator()<DType::MXFP4>();
    case DType::Q4_Z:
      return function.template operator()<DType::Q4_Z>();
    case DType::F4_16:
      return function.template operator()<DType::F4_16>();
    case DType::NF4:
      return function.template operator()<DType::NF4>();
    case DType::FP4:
      return function.template operator()<DType::FP4>();
    case DType::G4_NL:
      return function.template operator()<DType::G4_NL>();
    case DType::G4_2:
      return function.template operator()<DType::G4_2>();
    case DType::G4_3X:
      return function.template operator()<DType::G4_3X>();
    case DType::G4_3S:
      return function.template operator()<DType::G4_3S>();
    default:
      __builtin_trap();  // the back-end packs no other type
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu

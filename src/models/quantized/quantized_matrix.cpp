#include "models/quantized/quantized_matrix.h"

#include <fmt/format.h>

#include <vector>

#include "models/loading/binder.h"
#include "models/quantized/bitsandbytes.h"
#include "models/quantized/packed_formats.h"

namespace sluice::models {

namespace {

using formats::TensorStore;
using Format = QuantGroup::Format;

Result<HostTensor> read_compressed(const PackedModule& module) {
  const Result<const QuantGroup*> found = module.quantization().group_of(module.stem());
  if (!found) return found.error();
  const QuantGroup* group = *found;
  if (group == nullptr)
    return Error{ErrorCode::Corrupt,
                 fmt::format("module '{}' is quantised, but no 'targets' of quantization_config name it",
                             module.stem())};
  switch (group->format) {
    case Format::Packed:
      return read_packed(module, *group);
    case Format::Mxfp4:
      return read_mxfp4(module);
    case Format::Nvfp4: {
      const Result<std::vector<float>> whole = module.floats(".weight_global_scale", 1);
      if (!whole) return whole.error();
      return read_nvfp4(module, ".weight_packed", 1.0f / whole->front());
    }
    case Format::Int:
    case Format::Float:
      return read_int8(module, group->group_size, {});
  }
  return Error{ErrorCode::Unsupported, "a format of compressed-tensors"};
}

Result<HostTensor> read_by_method(const PackedModule& module) {
  using Method = Quantization::Method;
  switch (module.quantization().method) {
    case Method::Gptq:
      return read_gptq(module);
    case Method::Awq:
      return read_awq(module);
    case Method::CompressedTensors:
      return read_compressed(module);
    case Method::Modelopt: {
      const Result<std::vector<float>> whole = module.floats(".weight_scale_2", 1);
      if (!whole) return whole.error();
      return read_nvfp4(module, ".weight", whole->front());
    }
    default:
      return Error{
          ErrorCode::Corrupt,
          fmt::format("module '{}' is packed, but quantization_config does not say how", module.stem())};
  }
}

}  // namespace

bool has_matrix(const TensorStore& store, const std::string& stem) {
  for (const char* suffix : {".weight", "", ".qweight", ".weight_packed"})
    if (locate_tensor(store, stem, suffix)) return true;
  return false;
}

Result<std::optional<HostTensor>> read_quantized(const TensorStore& store, const Quantization& quantization,
                                                 const std::string& stem) {
  const PackedModule module(store, quantization, stem);
  const auto whole = [](Result<HostTensor> made) -> Result<std::optional<HostTensor>> {
    if (!made) return made.error();
    return std::optional<HostTensor>(std::move(*made));
  };
  const std::optional<std::string> weight = module.name(".weight");
  const bool packed = module.name(".qweight") || module.name(".weight_packed");
  Result<TensorView> plain = weight ? store.find(*weight) : Result<TensorView>(TensorView());
  if (!plain) return plain.error();
  const DType type = plain->dtype;
  if (!packed && (!weight || (type != DType::I8 && type != DType::U8))) return std::optional<HostTensor>();
  const Result<bool> ignored = quantization.ignores(stem);
  if (!ignored) return ignored.error();
  if (*ignored)
    return Error{ErrorCode::Corrupt,
                 fmt::format("module '{}' is quantised, but quantization_config says that it is not", stem)};
  if (!packed && module.name(".weight.absmax")) return whole(read_bitsandbytes_4bit(store, *weight));
  if (!packed && module.name(".SCB")) {
    Result<std::vector<float>> scales = module.floats(".SCB", plain->dim(0));
    if (!scales) return scales.error();
    for (float& scale : *scales) scale /= 127.0f;
    return whole(read_int8(module, 0, std::move(*scales)));
  }
  return whole(read_by_method(module));
}

}  // namespace sluice::models

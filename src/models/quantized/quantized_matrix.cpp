#include "models/quantized/quantized_matrix.h"

#include <fmt/format.h>

#include <vector>

#include "models/loading/locate.h"
#include "models/quantized/bitsandbytes.h"
#include "models/quantized/packed_formats.h"

namespace sluice::models {

namespace {

using formats::TensorStore;
using Format = QuantGroup::Format;

Result<QuantizedMatrix> as_it_lies(Result<HostTensor> made) {
  if (!made) return made.error();
  return QuantizedMatrix{std::move(*made), {}};
}

// Where config_groups do not say it.
Format told_by_tensors(const PackedModule& module) {
  if (!module.name(".weight_packed")) return Format::Int;
  if (module.name(".weight_global_scale")) return Format::Nvfp4;
  return module.tensor(".weight_packed", DType::U8).ok() ? Format::Mxfp4 : Format::Packed;
}

Result<QuantizedMatrix> read_compressed(const PackedModule& module) {
  const Result<const QuantGroup*> found = module.quantization().group_of(module.names());
  if (!found) return found.error();
  const QuantGroup* group = *found;
  if (group == nullptr)
    return Error{ErrorCode::Corrupt,
                 fmt::format("module '{}' is quantised, but no 'targets' of quantization_config name it",
                             module.stem())};
  switch (group->format.value_or(told_by_tensors(module))) {
    case Format::Packed:
      return read_packed(module, *group);
    case Format::Mxfp4:
      return as_it_lies(read_mxfp4(module));
    case Format::Nvfp4: {
      const Result<std::vector<float>> whole = module.floats(".weight_global_scale", 1);
      if (!whole) return whole.error();
      return as_it_lies(read_nvfp4(module, ".weight_packed", 1.0f / whole->front()));
    }
    case Format::Int:
    case Format::Float:
      return read_int8(module, *group);
  }
  return Error{ErrorCode::Unsupported, "a format of compressed-tensors"};
}

// Values U8 of Model Optimizer.
Result<QuantizedMatrix> read_modelopt_matrix(const PackedModule& module) {
  if (module.quantization().bits != 4)
    return Error{
        ErrorCode::Corrupt,
        fmt::format("module '{}' has values of 4 bits, and 'quant_algo' of quantization_config is of 8",
                    module.stem())};
  const Result<std::vector<float>> whole = module.floats(".weight_scale_2", 1);
  if (!whole) return whole.error();
  return as_it_lies(read_nvfp4(module, ".weight", whole->front()));
}

// int8 with SCB, or nf4 and fp4 with absmax.
Result<QuantizedMatrix> read_bitsandbytes(const PackedModule& module, const TensorStore& store,
                                          const std::string& weight) {
  const Quantization& quantization = module.quantization();
  const bool four = module.name(".weight.absmax").has_value();
  if (quantization.method == Quantization::Method::Bitsandbytes && (quantization.bits == 4) != four)
    return Error{
        ErrorCode::Corrupt,
        fmt::format("module '{}' has values of {} bits, and quantization_config says 'load_in_{}bit'",
                    module.stem(), four ? 4 : 8, quantization.bits)};
  if (four) return as_it_lies(read_bitsandbytes_4bit(store, weight));
  const Result<TensorView> values = store.find(weight);
  if (!values) return values.error();
  Result<std::vector<float>> scales = module.floats(".SCB", values->rank > 0 ? values->dim(0) : 0);
  if (!scales) return scales.error();
  for (float& scale : *scales) scale /= 127.0f;
  return read_int8(module, std::move(*scales));
}

Result<QuantizedMatrix> read_by_method(const PackedModule& module) {
  using Method = Quantization::Method;
  switch (module.quantization().method) {
    case Method::Gptq:
      return read_gptq(module);
    case Method::Awq:
      return read_awq(module);
    case Method::CompressedTensors:
      return read_compressed(module);
    case Method::Modelopt:
      return read_modelopt_matrix(module);
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

Status check_quantized(const TensorStore& store, const Quantization& quantization, const std::string& stem) {
  const Result<bool> ignored = quantization.ignores(spellings(stem));
  if (!ignored) return ignored.error();
  if (*ignored)
    return Error{ErrorCode::Corrupt,
                 fmt::format("module '{}' is quantised, but quantization_config says that it is not", stem)};
  if (const std::optional<std::string> name = locate_tensor(store, stem, ".pre_quant_scale"))
    return Error{
        ErrorCode::Unsupported,
        fmt::format("tensor '{}' scales what the matrix is multiplied with, which is not done", *name)};
  return {};
}

Result<std::optional<QuantizedMatrix>> read_quantized(const TensorStore& store,
                                                      const Quantization& quantization,
                                                      const std::string& stem) {
  const std::optional<std::string> weight = locate_tensor(store, stem, ".weight");
  const bool packed = locate_tensor(store, stem, ".qweight") || locate_tensor(store, stem, ".weight_packed");
  const bool four = !packed && weight && locate_tensor(store, stem, ".weight.absmax");
  const Result<TensorView> plain = weight && !packed ? store.find(*weight) : Result<TensorView>(TensorView());
  if (!plain) return plain.error();
  const bool bytes = weight && !packed && (plain->dtype == DType::I8 || plain->dtype == DType::U8);
  if (!packed && !bytes && !four) return std::optional<QuantizedMatrix>();
  if (Status status = check_quantized(store, quantization, stem); !status) return status.error();
  const PackedModule module(store, quantization, stem);
  const bool own =
      four || (bytes && (module.name(".SCB") || quantization.method == Quantization::Method::Bitsandbytes));
  Result<QuantizedMatrix> made = own ? read_bitsandbytes(module, store, *weight) : read_by_method(module);
  if (!made) return made.error();
  return std::optional<QuantizedMatrix>(std::move(*made));
}

}  // namespace sluice::models

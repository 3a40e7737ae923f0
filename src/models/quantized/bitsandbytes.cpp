#include "models/quantized/bitsandbytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/json.h"
#include "models/quantized/grouped.h"
#include "tensor/float_tables.h"
#include "tensor/half.h"

namespace sluice::models {

namespace {

constexpr int kColumns = 32;  // of our blocks

// The JSON beside the values.
struct State {
  DType type = DType::NF4;
  int64_t rows = 0, cols = 0;
  int64_t block = 0;
  int64_t nested_block = 0;  // 0: scales are not quantised
  float nested_offset = 0.0f;
};

Error wrong_state(const std::string& name, std::string_view key) {
  return {ErrorCode::Corrupt, fmt::format("tensor '{}': '{}' is missing or out of range", name, key)};
}

Result<State> parse_state(const std::string& name, const json::object& object, DType type) {
  State state;
  state.type = type;
  constexpr int64_t kMost = int64_t{1} << 31;
  const json::value* shape = object.if_contains("shape");
  const json::array* sides = shape == nullptr ? nullptr : shape->if_array();
  if (sides == nullptr || sides->size() != 2 || !(*sides)[0].is_int64() || !(*sides)[1].is_int64())
    return wrong_state(name, "shape");
  state.rows = (*sides)[0].get_int64();
  state.cols = (*sides)[1].get_int64();
  if (state.rows < 1 || state.cols < 1 || state.rows > kMost || state.cols > kMost)
    return wrong_state(name, "shape");
  const auto block = get_int(object, "blocksize");
  if (!block || !block->has_value() || **block < 2 || **block > kMost) return wrong_state(name, "blocksize");
  state.block = **block;
  const auto nested = get_int(object, "nested_blocksize");
  if (!nested || (nested->has_value() && (**nested < 1 || **nested > kMost)))
    return wrong_state(name, "nested_blocksize");
  state.nested_block = nested->value_or(0);
  const auto offset = get_number(object, "nested_offset");
  if (!offset) return wrong_state(name, "nested_offset");
  state.nested_offset = static_cast<float>(offset->value_or(0.0));
  return state;
}

Result<State> read_state(const formats::TensorStore& store, const std::string& weight) {
  for (const DType type : {DType::NF4, DType::FP4}) {
    const char* kind = type == DType::NF4 ? "nf4" : "fp4";
    const std::string name = fmt::format("{}.quant_state.bitsandbytes__{}", weight, kind);
    if (!store.contains(name)) continue;
    const Result<TensorView> view = store.find(name);
    if (!view) return view.error();
    if (view->dtype != DType::U8)
      return Error{ErrorCode::Corrupt, fmt::format("tensor '{}' is {}, must be U8", name, view->describe())};
    const std::string_view text(static_cast<const char*>(view->data), static_cast<size_t>(view->elements()));
    Result<json::value> value = parse_json(text, name);
    if (!value) return value.error();
    if (!value->is_object()) return Error{ErrorCode::Corrupt, name + ": not an object"};
    return parse_state(name, value->get_object(), type);
  }
  return Error{ErrorCode::Corrupt, fmt::format("tensor '{}' has no quant_state", weight)};
}

Result<TensorView> of_size(const formats::TensorStore& store, const std::string& name, DType type,
                           int64_t elements) {
  Result<TensorView> view = store.find(name);
  if (!view) return view;
  if (view->dtype != type || view->elements() != elements)
    return Error{ErrorCode::Corrupt, fmt::format("tensor '{}' is {}, must be {} elements of {}", name,
                                                 view->describe(), elements, sluice::name(type))};
  return view;
}

Result<std::vector<float>> floats(const formats::TensorStore& store, const std::string& name,
                                  int64_t elements) {
  const Result<TensorView> view = of_size(store, name, DType::F32, elements);
  if (!view) return view.error();
  std::vector<float> values(static_cast<size_t>(elements));
  std::memcpy(values.data(), view->data, values.size() * 4);
  for (const float value : values)
    if (!std::isfinite(value))
      return Error{ErrorCode::Corrupt, fmt::format("tensor '{}' holds {}", name, value)};
  return values;
}

// One per block of the matrix in row-major order.
Result<std::vector<float>> read_scales(const formats::TensorStore& store, const std::string& weight,
                                       const State& state) {
  const int64_t blocks = (state.rows * state.cols + state.block - 1) / state.block;
  if (state.nested_block == 0) return floats(store, weight + ".absmax", blocks);
  const Result<TensorView> codes = of_size(store, weight + ".absmax", DType::U8, blocks);
  if (!codes) return codes.error();
  const int64_t outer = (blocks + state.nested_block - 1) / state.nested_block;
  const Result<std::vector<float>> absmax = floats(store, weight + ".nested_absmax", outer);
  if (!absmax) return absmax.error();
  const Result<std::vector<float>> map = floats(store, weight + ".nested_quant_map", 256);
  if (!map) return map.error();
  std::vector<float> scales(static_cast<size_t>(blocks));
  const auto* from = static_cast<const uint8_t*>(codes->data);
  for (int64_t i = 0; i < blocks; ++i)
    scales[static_cast<size_t>(i)] =
        (*map)[from[i]] * (*absmax)[static_cast<size_t>(i / state.nested_block)] + state.nested_offset;
  return scales;
}

// Whether the map is that of the type, which files repeat.
bool is_table(DType type, const std::vector<float>& map) {
  const std::array<float, 16> table = float_table(type);
  return std::equal(table.begin(), table.end(), map.begin(),
                    [](float a, float b) { return std::abs(a - b) <= 1e-6f; });
}

// Blocks of 32 columns with the scale of the block that they are a part of. The first element of a byte is in its high half.
HostTensor make_blocks(const State& state, const uint8_t* from, const std::vector<float>& scales) {
  HostTensor out = HostTensor::make(state.type, {state.rows, state.cols});
  auto* to = reinterpret_cast<uint8_t*>(out.buffer.data());
  const auto code = [&](int i) { return (from[i / 2] >> (i % 2 == 0 ? 4 : 0)) & 0xf; };
  for (int64_t first = 0; first < state.rows * state.cols; first += kColumns, from += kColumns / 2) {
    const uint16_t scale = f32_to_f16(scales[static_cast<size_t>(first / state.block)]);
    std::memcpy(to, &scale, 2);
    to += 2;
    for (int i = 0; i < kColumns / 2; ++i)
      *to++ = static_cast<uint8_t>(code(i) | code(i + kColumns / 2) << 4);
  }
  return out;
}

}  // namespace

Result<HostTensor> read_bitsandbytes_4bit(const formats::TensorStore& store, const std::string& weight) {
  const Result<State> state = read_state(store, weight);
  if (!state) return state.error();
  const int64_t elements = state->rows * state->cols;
  const Result<TensorView> values = store.find(weight);  // bytes in whatever type they were stored
  if (!values) return values.error();
  if (is_block(values->dtype) || values->bytes() != (elements + 1) / 2)
    return Error{ErrorCode::Corrupt, fmt::format("tensor '{}' is {}, its shape is [{}, {}] of 4 bits", weight,
                                                 values->describe(), state->rows, state->cols)};
  const Result<std::vector<float>> map = floats(store, weight + ".quant_map", 16);
  if (!map) return map.error();
  const Result<std::vector<float>> scales = read_scales(store, weight, *state);
  if (!scales) return scales.error();
  const auto* from = static_cast<const uint8_t*>(values->data);
  if (state->cols % kColumns == 0 && state->block % kColumns == 0 && is_table(state->type, *map) &&
      fit_halves(*scales))
    return make_blocks(*state, from, *scales);
  return make_plain(state->rows, state->cols, [&](int64_t row, float* out) {
    for (int64_t c = 0; c < state->cols; ++c) {
      const int64_t i = row * state->cols + c;
      const int code = i % 2 == 0 ? from[i / 2] >> 4 : from[i / 2] & 0xf;  // the high half comes first
      out[c] = (*map)[static_cast<size_t>(code)] * (*scales)[static_cast<size_t>(i / state->block)];
    }
  });
}

}  // namespace sluice::models

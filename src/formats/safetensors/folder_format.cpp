#include "formats/safetensors/folder_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "formats/quote.h"
#include "tensor/blocks.h"
#include "tensor/quantize_matrix.h"

namespace sluice::formats {

namespace {

using Bytes = std::vector<std::vector<uint8_t>>;

constexpr int64_t kFields = 8;  // of four bits in a word

// Codes of a matrix and what they stand for.
struct FourBitMatrix {
  int64_t rows = 0, cols = 0, groups = 0;
  std::vector<uint8_t> codes;        // [rows, cols]
  std::vector<FourBitGroup> scales;  // [rows, groups]
};

// Calls row(r, floats) for each row on all threads; an error where one is not finite.
Status for_float_rows(const std::string& module, const TensorView& weight, ThreadPool& pool,
                      FunctionRef<void(int64_t, const float*)> row) {
  const int64_t rows = weight.dim(0), cols = weight.dim(1), bytes = row_bytes(weight.dtype, cols);
  std::atomic<bool> finite{true};
  pool.for_ranges(rows, 8, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(cols));
    for (int64_t r = begin; r < end; ++r) {
      dequantize_row(weight.dtype, static_cast<const std::byte*>(weight.data) + r * bytes, values.data(),
                     cols);
      if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }))
        finite = false;
      else
        row(r, values.data());
    }
  });
  if (finite) return {};
  return Error{ErrorCode::Corrupt,
               fmt::format("tensor {} holds values that are not finite", quote(module + ".weight"))};
}

Result<Bytes> make_rows(const std::string& module, const TensorView& weight, bool floats, ThreadPool& pool) {
  const int64_t rows = weight.dim(0), cols = weight.dim(1);
  Bytes out{std::vector<uint8_t>(static_cast<size_t>(rows * cols)),
            std::vector<uint8_t>(static_cast<size_t>(rows) * 4)};
  const Status made = for_float_rows(module, weight, pool, [&](int64_t r, const float* values) {
    uint8_t* to = out[0].data() + r * cols;
    const float scale = floats ? quantize_row_e4m3(values, to, cols) : quantize_row_int8(values, to, cols);
    std::memcpy(out[1].data() + r * 4, &scale, 4);
  });
  if (!made) return made.error();
  return out;
}

Result<FourBitMatrix> make_codes(const std::string& module, const TensorView& weight, const FourBits& how,
                                 int group, ThreadPool& pool) {
  FourBitMatrix m{weight.dim(0), weight.dim(1), weight.dim(1) / group, {}, {}};
  m.codes.resize(static_cast<size_t>(m.rows * m.cols));
  m.scales.resize(static_cast<size_t>(m.rows * m.groups));
  const Status made = for_float_rows(module, weight, pool, [&](int64_t r, const float* values) {
    for (int64_t g = 0; g < m.groups; ++g) {
      FourBits own = how;
      if (own.importance != nullptr) own.importance += g * group;
      m.scales[static_cast<size_t>(r * m.groups + g)] =
          quantize_four_bits(values + g * group, group, own, m.codes.data() + r * m.cols + g * group);
    }
  });
  if (!made) return made.error();
  return m;
}

template <class T>
void put(std::vector<uint8_t>& to, int64_t index, T value) {
  std::memcpy(to.data() + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

// weight_packed I32 [rows, cols / 8], weight_scale [rows, groups], weight_shape I64 [2].
Bytes pack_rows(const FourBitMatrix& m) {
  Bytes out{std::vector<uint8_t>(static_cast<size_t>(m.rows * m.cols / 2)),
            std::vector<uint8_t>(static_cast<size_t>(m.rows * m.groups * 2)), std::vector<uint8_t>(16)};
  for (int64_t i = 0; i < m.rows * m.cols / kFields; ++i) {
    uint32_t word = 0;
    for (int64_t k = 0; k < kFields; ++k)
      word |= uint32_t{m.codes[static_cast<size_t>(i * kFields + k)]} << (4 * k);
    put(out[0], i, word);
  }
  for (int64_t i = 0; i < m.rows * m.groups; ++i) put(out[1], i, m.scales[static_cast<size_t>(i)].scale);
  put(out[2], 0, m.rows);
  put(out[2], 1, m.cols);
  return out;
}

// Rows n to n + 7 of a word of AWQ: its nibbles are rows 0, 2, 4, 6, 1, 3, 5, 7.
uint32_t awq_word(FunctionRef<uint8_t(int64_t)> row) {
  constexpr int kRows[] = {0, 2, 4, 6, 1, 3, 5, 7};
  uint32_t word = 0;
  for (int k = 0; k < 8; ++k) word |= uint32_t{row(kRows[k])} << (4 * k);
  return word;
}

// qweight I32 [cols, rows / 8], qzeros I32 [groups, rows / 8], scales F16 [groups, rows].
Bytes pack_columns(const FourBitMatrix& m) {
  const int64_t words = m.rows / kFields;
  Bytes out{std::vector<uint8_t>(static_cast<size_t>(m.cols * words * 4)),
            std::vector<uint8_t>(static_cast<size_t>(m.groups * words * 4)),
            std::vector<uint8_t>(static_cast<size_t>(m.groups * m.rows * 2))};
  for (int64_t w = 0; w < words; ++w) {
    const int64_t first = w * kFields;
    for (int64_t c = 0; c < m.cols; ++c)
      put(out[0], c * words + w,
          awq_word([&](int64_t row) { return m.codes[static_cast<size_t>((first + row) * m.cols + c)]; }));
    for (int64_t g = 0; g < m.groups; ++g)
      put(out[1], g * words + w, awq_word([&](int64_t row) {
            return m.scales[static_cast<size_t>((first + row) * m.groups + g)].zero;
          }));
  }
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t g = 0; g < m.groups; ++g)
      put(out[2], g * m.rows + r, m.scales[static_cast<size_t>(r * m.groups + g)].scale);
  return out;
}

json::object weights_config(const FolderLayout& layout) {
  const bool grouped = layout.grouped();
  return {{"num_bits", grouped ? 4 : 8},
          {"type", layout.format == FolderFormat::Fp8 ? "float" : "int"},
          {"symmetric", true},
          {"strategy", grouped ? "group" : "channel"},
          {"group_size", grouped ? json::value(layout.group) : json::value(nullptr)},
          {"dynamic", false},
          {"actorder", nullptr},
          {"observer", "mse"}};
}

std::string dtype_name(DType type) {
  return std::string(sluice::name(type));
}

}  // namespace

bool FolderLayout::holds(const TensorView& weight) const {
  const bool plain = weight.dtype == DType::F32 || weight.dtype == DType::F16 || weight.dtype == DType::BF16;
  if (weight.rank != 2 || !plain || weight.elements() == 0) return false;
  if (!grouped()) return true;
  return weight.dim(1) % group == 0 && (format != FolderFormat::Awq || weight.dim(0) % kFields == 0);
}

json::object quantization_config(const FolderLayout& layout, const std::vector<std::string>& ignore) {
  const json::array names(ignore.begin(), ignore.end());
  if (layout.format == FolderFormat::Awq)
    return {{"quant_method", "awq"},
            {"bits", 4},
            {"group_size", layout.group},
            {"zero_point", true},
            {"version", "gemm"},
            {"backend", "autoawq"},
            {"modules_to_not_convert", names}};
  const char* format = layout.format == FolderFormat::Fp8    ? "float-quantized"
                       : layout.format == FolderFormat::Int8 ? "int-quantized"
                                                             : "pack-quantized";
  json::value inputs = nullptr;
  if (!layout.grouped())
    inputs = json::object{{"num_bits", 8},
                          {"type", layout.format == FolderFormat::Fp8 ? "float" : "int"},
                          {"symmetric", true},
                          {"strategy", "token"},
                          {"dynamic", true}};
  const json::object group{{"targets", json::array{"Linear"}},
                           {"weights", weights_config(layout)},
                           {"input_activations", std::move(inputs)},
                           {"output_activations", nullptr}};
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", json::object{{"group_0", group}}},
          {"ignore", names},
          {"kv_cache_scheme", nullptr},
          {"quantization_status", "compressed"}};
}

WrittenGroup quantized_module(const FolderLayout& layout, const std::string& module, TensorView weight,
                              std::function<std::vector<float>()> importance, ThreadPool& pool) {
  const int64_t rows = weight.dim(0), cols = weight.dim(1);
  const auto elements = static_cast<uint64_t>(rows * cols), height = static_cast<uint64_t>(rows);
  if (!layout.grouped()) {
    const bool floats = layout.format == FolderFormat::Fp8;
    return {{{module + ".weight", floats ? "F8_E4M3" : "I8", {rows, cols}, elements},
             {module + ".weight_scale", "F32", {rows, 1}, height * 4}},
            [=, &pool] { return make_rows(module, weight, floats, pool); }};
  }
  const int64_t groups = cols / layout.group;
  const uint64_t scales = height * static_cast<uint64_t>(groups);
  const bool awq = layout.format == FolderFormat::Awq;
  const DType scale_type = weight.dtype == DType::BF16 && !awq ? DType::BF16 : DType::F16;
  const auto make = [=, &pool]() -> Result<Bytes> {
    const std::vector<float> counts = importance ? importance() : std::vector<float>();
    if (!counts.empty() && counts.size() != static_cast<size_t>(cols))
      return Error{ErrorCode::InvalidArgument, fmt::format("{} has {} columns, the calibration has seen {}",
                                                           quote(module), cols, counts.size())};
    const FourBits how{!awq, scale_type, counts.empty() ? nullptr : counts.data()};
    const Result<FourBitMatrix> made = make_codes(module, weight, how, layout.group, pool);
    if (!made) return made.error();
    return awq ? pack_columns(*made) : pack_rows(*made);
  };
  if (awq)
    return {{{module + ".qweight", "I32", {cols, rows / kFields}, elements / 2},
             {module + ".qzeros", "I32", {groups, rows / kFields}, scales / 2},
             {module + ".scales", "F16", {groups, rows}, scales * 2}},
            make};
  return {{{module + ".weight_packed", "I32", {rows, cols / kFields}, elements / 2},
           {module + ".weight_scale", dtype_name(scale_type), {rows, groups}, scales * 2},
           {module + ".weight_shape", "I64", {2}, 16}},
          make};
}

WrittenGroup copied_tensor(const std::string& name, TensorView tensor) {
  const auto bytes = static_cast<uint64_t>(tensor.bytes());
  return {
      {{name, dtype_name(tensor.dtype), {tensor.shape.begin(), tensor.shape.begin() + tensor.rank}, bytes}},
      [=]() -> Result<Bytes> {
        const auto* from = static_cast<const uint8_t*>(tensor.data);
        return Bytes{std::vector<uint8_t>(from, from + bytes)};
      }};
}

}  // namespace sluice::formats

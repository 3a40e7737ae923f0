#include "models/loading/quantized_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "models/loading/binder.h"
#include "models/loading/bitsandbytes.h"
#include "models/loading/grouped.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace sluice::models {

namespace {

using formats::TensorStore;
using Format = QuantGroup::Format;

constexpr int64_t kWordBits = 32;

template <class... Args>
Error wrong(const std::string& tensor, fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::Corrupt,
          fmt::format("tensor '{}': {}", tensor, fmt::format(format, std::forward<Args>(args)...))};
}

uint32_t word_at(const TensorView& view, int64_t i, int64_t j) {
  uint32_t word;
  std::memcpy(&word, static_cast<const std::byte*>(view.data) + (i * view.dim(1) + j) * 4, 4);
  return word;
}

int field(uint32_t word, int64_t index, int bits) {
  return static_cast<int>(word >> (index * bits)) & ((1 << bits) - 1);
}

// One module's tensors.
class Module {
 public:
  Module(const TensorStore& store, const Quantization& quantization, const std::string& stem)
      : store_(store), quantization_(quantization), stem_(stem) {}

  std::optional<std::string> name(std::string_view suffix) const {
    return locate_tensor(store_, stem_, suffix);
  }

  // Of that type and rank; an error says what is there.
  Result<TensorView> tensor(std::string_view suffix, DType type, int rank) const {
    const std::optional<std::string> found = name(suffix);
    if (!found)
      return Error{ErrorCode::Corrupt, fmt::format("module '{}' has no tensor '{}'", stem_, suffix)};
    Result<TensorView> view = store_.find(*found);
    if (!view) return view;
    if (view->dtype != type || view->rank != rank)
      return wrong(*found, "is {}, must be {} of rank {}", view->describe(), sluice::name(type), rank);
    return view;
  }

  // As floats, whatever plain type it has; [rows, groups] of any shape with so many elements.
  Result<std::vector<float>> floats(std::string_view suffix, int64_t elements) const {
    const std::optional<std::string> found = name(suffix);
    if (!found)
      return Error{ErrorCode::Corrupt, fmt::format("module '{}' has no tensor '{}'", stem_, suffix)};
    const Result<TensorView> view = store_.find(*found);
    if (!view) return view.error();
    const DType type = view->dtype;
    if (type != DType::F32 && type != DType::F16 && type != DType::BF16 && type != DType::F8_E4M3)
      return wrong(*found, "is {}, must hold floats", view->describe());
    if (view->elements() != elements)
      return wrong(*found, "is {}, must have {} elements", view->describe(), elements);
    std::vector<float> values(static_cast<size_t>(elements));
    dequantize_row(type, view->data, values.data(), elements);
    for (const float value : values)
      if (!std::isfinite(value)) return wrong(*found, "holds {}", value);
    return values;
  }

  const Quantization& quantization() const { return quantization_; }
  const std::string& stem() const { return stem_; }

 private:
  const TensorStore& store_;
  const Quantization& quantization_;
  const std::string& stem_;
};

// Columns of a group and their number, or an error that names both.
Status set_groups(GroupedMatrix& m, int group_size, int64_t found, const std::string& scales) {
  m.group = group_size == 0 ? m.cols : group_size;
  m.groups = (m.cols + m.group - 1) / m.group;
  if (m.groups != found)
    return wrong(scales, "has {} groups, a group_size of {} over {} columns makes {}", found, m.group, m.cols,
                 m.groups);
  return {};
}

// order[k] is the group of column k; dropped where it says no more than their sequence does.
Status set_order(GroupedMatrix& m, const Module& module, std::string_view suffix) {
  const std::optional<std::string> name = module.name(suffix);
  if (!name) return {};
  const Result<TensorView> view = module.tensor(suffix, DType::I32, 1);
  if (!view) return view.error();
  if (view->dim(0) != m.cols) return wrong(*name, "is {}, must have {} elements", view->describe(), m.cols);
  std::vector<int32_t> order(static_cast<size_t>(m.cols));
  std::memcpy(order.data(), view->data, order.size() * 4);
  bool plain = true;
  for (int64_t k = 0; k < m.cols; ++k) {
    const int32_t group = order[static_cast<size_t>(k)];
    if (group < 0 || group >= m.groups)
      return wrong(*name, "column {} is of group {}, there are {}", k, group, m.groups);
    plain = plain && group == k / m.group;
  }
  if (!plain) m.order = std::move(order);
  return {};
}

// [groups, rows] to [rows, groups].
std::vector<float> transposed(const std::vector<float>& from, int64_t groups, int64_t rows) {
  std::vector<float> to(from.size());
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t n = 0; n < rows; ++n)
      to[static_cast<size_t>(n * groups + g)] = from[static_cast<size_t>(g * rows + n)];
  return to;
}

// Zero points I32 [groups, rows * bits / 32] of GPTQ and AWQ, in whose words `place` gives the field of each column.
Status set_zeros(GroupedMatrix& m, const Module& module, FunctionRef<int64_t(int64_t)> place, int plus) {
  const Result<TensorView> view = module.tensor(".qzeros", DType::I32, 2);
  if (!view) return view.error();
  const int64_t fields = kWordBits / m.bits;
  if (view->dim(0) != m.groups || view->dim(1) != (m.rows + fields - 1) / fields)
    return wrong(*module.name(".qzeros"), "is {}, must be [{}, {}]", view->describe(), m.groups,
                 (m.rows + fields - 1) / fields);
  m.zeros.resize(static_cast<size_t>(m.rows * m.groups));
  for (int64_t g = 0; g < m.groups; ++g)
    for (int64_t n = 0; n < m.rows; ++n)
      m.zeros[static_cast<size_t>(n * m.groups + g)] = static_cast<uint8_t>(
          (field(word_at(*view, g, n / fields), place(n % fields), m.bits) + plus) & ((1 << m.bits) - 1));
  return {};
}

// What GPTQ and AWQ share: scales [groups, rows].
Status set_column_scales(GroupedMatrix& m, const Module& module) {
  const std::optional<std::string> name = module.name(".scales");
  if (!name)
    return Error{ErrorCode::Corrupt, fmt::format("module '{}' has no tensor '.scales'", module.stem())};
  const int64_t wanted = module.quantization().group_size;
  const int64_t group = wanted == 0 ? m.cols : wanted;
  const int64_t groups = (m.cols + group - 1) / group;
  Result<std::vector<float>> scales = module.floats(".scales", groups * m.rows);
  if (!scales) return scales.error();
  if (Status set = set_groups(m, static_cast<int>(wanted), groups, *name); !set) return set;
  m.scales = transposed(*scales, groups, m.rows);
  return {};
}

// qweight I32 [cols * bits / 32, rows], the first column in the lowest bits.
Result<HostTensor> read_gptq(const Module& module) {
  const Result<TensorView> view = module.tensor(".qweight", DType::I32, 2);
  if (!view) return view.error();
  GroupedMatrix m;
  m.bits = module.quantization().bits;
  const int64_t fields = kWordBits / m.bits;
  m.rows = view->dim(1);
  m.cols = view->dim(0) * fields;
  if (Status set = set_column_scales(m, module); !set) return set.error();
  if (Status set = set_order(m, module, ".g_idx"); !set) return set.error();
  const auto plain = [](int64_t i) { return i; };
  if (Status set = set_zeros(m, module, plain, module.quantization().zeros_less_one ? 1 : 0); !set)
    return set.error();
  return make_grouped(m, [&](int64_t first, int64_t count, uint8_t* out) {
    for (int64_t k = 0; k < m.cols; ++k)
      for (int64_t n = 0; n < count; ++n)
        out[n * m.cols + k] =
            static_cast<uint8_t>(field(word_at(*view, k / fields, first + n), k % fields, m.bits));
  });
}

// qweight I32 [cols, rows / 8], whose nibbles are rows 0, 2, 4, 6, 1, 3, 5, 7.
Result<HostTensor> read_awq(const Module& module) {
  const Result<TensorView> view = module.tensor(".qweight", DType::I32, 2);
  if (!view) return view.error();
  GroupedMatrix m;
  m.rows = view->dim(1) * 8;
  m.cols = view->dim(0);
  const auto place = [](int64_t i) { return i % 2 * 4 + i / 2; };
  if (Status set = set_column_scales(m, module); !set) return set.error();
  if (Status set = set_zeros(m, module, place, 0); !set) return set.error();
  return make_grouped(m, [&](int64_t first, int64_t count, uint8_t* out) {
    for (int64_t k = 0; k < m.cols; ++k)
      for (int64_t n = 0; n < count; ++n)
        out[n * m.cols + k] =
            static_cast<uint8_t>(field(word_at(*view, k, (first + n) / 8), place((first + n) % 8), 4));
  });
}

// Scales [rows, groups], one per row, or one for all.
Status set_row_scales(GroupedMatrix& m, const Module& module, int group_size) {
  const std::string name = module.name(".weight_scale").value_or(module.stem() + ".weight_scale");
  Result<std::vector<float>> one = module.floats(".weight_scale", 1);
  const int64_t groups = group_size == 0 ? 1 : (m.cols + group_size - 1) / group_size;
  if (one && m.rows * groups != 1) {
    m.scales.assign(static_cast<size_t>(m.rows), one->front());
    return set_groups(m, 0, 1, name);
  }
  Result<std::vector<float>> scales = module.floats(".weight_scale", m.rows * groups);
  if (!scales) return scales.error();
  m.scales = std::move(*scales);
  return set_groups(m, group_size, groups, name);
}

// weight_packed I32 [rows, cols * bits / 32]; weight_zero_point I32 [rows * bits / 32, groups].
Result<HostTensor> read_packed(const Module& module, const QuantGroup& group) {
  const Result<TensorView> view = module.tensor(".weight_packed", DType::I32, 2);
  if (!view) return view.error();
  GroupedMatrix m;
  m.bits = group.bits;
  const int64_t fields = kWordBits / m.bits;
  m.rows = view->dim(0);
  m.cols = view->dim(1) * fields;
  if (Status set = set_row_scales(m, module, group.group_size); !set) return set.error();
  if (Status set = set_order(m, module, ".weight_g_idx"); !set) return set.error();
  const bool has_zeros = module.name(".weight_zero_point").has_value();
  if (group.symmetric == has_zeros)
    return wrong(module.stem(), "quantization_config says symmetric is {}, and there is {} weight_zero_point",
                 group.symmetric, has_zeros ? "a" : "no");
  if (has_zeros) {
    const Result<TensorView> zeros = module.tensor(".weight_zero_point", DType::I32, 2);
    if (!zeros) return zeros.error();
    if (zeros->dim(0) != (m.rows + fields - 1) / fields || zeros->dim(1) != m.groups)
      return wrong(*module.name(".weight_zero_point"), "is {}, must be [{}, {}]", zeros->describe(),
                   (m.rows + fields - 1) / fields, m.groups);
    m.zeros.resize(static_cast<size_t>(m.rows * m.groups));
    for (int64_t n = 0; n < m.rows; ++n)
      for (int64_t g = 0; g < m.groups; ++g)
        m.zeros[static_cast<size_t>(n * m.groups + g)] =
            static_cast<uint8_t>(field(word_at(*zeros, n / fields, g), n % fields, m.bits));
  }
  return make_grouped(m, [&](int64_t first, int64_t count, uint8_t* out) {
    for (int64_t n = 0; n < count; ++n)
      for (int64_t k = 0; k < m.cols; ++k)
        out[n * m.cols + k] =
            static_cast<uint8_t>(field(word_at(*view, first + n, k / fields), k % fields, m.bits));
  });
}

// weight I8 [rows, cols] with its scales.
Result<HostTensor> read_int8(const Module& module, int group_size, std::vector<float> row_scales) {
  const Result<TensorView> view = module.tensor(".weight", DType::I8, 2);
  if (!view) return view.error();
  GroupedMatrix m;
  m.bits = 8;
  m.rows = view->dim(0);
  m.cols = view->dim(1);
  if (!row_scales.empty()) {
    m.scales = std::move(row_scales);
    m.group = m.cols;
    m.groups = 1;
  } else if (Status set = set_row_scales(m, module, group_size); !set) {
    return set.error();
  }
  if (module.name(".weight_zero_point")) {
    const Result<TensorView> zeros = module.tensor(".weight_zero_point", DType::I8, 2);
    if (!zeros) return zeros.error();
    if (zeros->elements() != m.rows * m.groups)
      return wrong(*module.name(".weight_zero_point"), "is {}, must have {} elements", zeros->describe(),
                   m.rows * m.groups);
    const auto* from = static_cast<const uint8_t*>(zeros->data);
    for (int64_t i = 0; i < zeros->elements(); ++i) m.zeros.push_back(static_cast<uint8_t>(from[i] ^ 0x80));
  }
  const auto* from = static_cast<const uint8_t*>(view->data);
  return make_grouped(m, [&](int64_t first, int64_t count, uint8_t* out) {
    for (int64_t i = 0; i < count * m.cols; ++i)
      out[i] = static_cast<uint8_t>(from[first * m.cols + i] ^ 0x80);
  });
}

// Nibbles [rows, cols / 2], the first column low, to the order of our blocks: column i low, column i + 16 high.
void put_nibbles(uint8_t* to, const uint8_t* from) {
  const auto code = [&](int i) { return (from[i / 2] >> (i % 2 * 4)) & 0xf; };
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(code(i) | code(i + 16) << 4);
}

// U8 [rows, cols / 2] of e2m1 with e4m3 scales [rows, cols / 16], times `factor`.
Result<HostTensor> read_nvfp4(const Module& module, std::string_view values, float factor) {
  const Result<TensorView> view = module.tensor(values, DType::U8, 2);
  if (!view) return view.error();
  const int64_t rows = view->dim(0), cols = view->dim(1) * 2;
  const Result<TensorView> scales = module.tensor(".weight_scale", DType::F8_E4M3, 2);
  if (!scales) return scales.error();
  if (scales->dim(0) != rows || scales->dim(1) * 16 != cols || cols % 32 != 0)
    return wrong(*module.name(".weight_scale"),
                 "is {}, values are {}: must be [{}, {}], a multiple of 32 columns", scales->describe(),
                 view->describe(), rows, cols / 16);
  if (!std::isfinite(factor) || factor == 0.0f)
    return wrong(module.stem(), "its scale for the whole matrix is {}", factor);
  HostTensor out = HostTensor::make(DType::F4_16, {rows, cols});
  auto* to = reinterpret_cast<uint8_t*>(out.buffer.data());
  const auto* from = static_cast<const uint8_t*>(view->data);
  const auto* scale = static_cast<const uint8_t*>(scales->data);
  for (int64_t i = 0; i < rows * cols / 32; ++i, to += 20, from += 16) {
    for (int half = 0; half < 2; ++half) {
      const uint16_t d = f32_to_f16(0.5f * factor * e4m3_to_f32(*scale++));
      std::memcpy(to + 2 * half, &d, 2);
    }
    put_nibbles(to + 4, from);
  }
  return out;
}

// weight_packed U8 [rows, cols / 2] with scales U8 [rows, cols / 32], powers of two.
Result<HostTensor> read_mxfp4(const Module& module) {
  const Result<TensorView> view = module.tensor(".weight_packed", DType::U8, 2);
  if (!view) return view.error();
  const Result<TensorView> scales = module.tensor(".weight_scale", DType::U8, 2);
  if (!scales) return scales.error();
  const int64_t rows = view->dim(0), cols = view->dim(1) * 2;
  if (scales->dim(0) != rows || scales->dim(1) * 32 != cols)
    return wrong(*module.name(".weight_scale"), "is {}, values are {}: must be [{}, {}]", scales->describe(),
                 view->describe(), rows, cols / 32);
  HostTensor out = HostTensor::make(DType::MXFP4, {rows, cols});
  auto* to = reinterpret_cast<uint8_t*>(out.buffer.data());
  const auto* from = static_cast<const uint8_t*>(view->data);
  const auto* scale = static_cast<const uint8_t*>(scales->data);
  for (int64_t i = 0; i < rows * cols / 32; ++i, to += 17, from += 16) {
    to[0] = *scale++;
    put_nibbles(to + 1, from);
  }
  return out;
}

Result<HostTensor> read_compressed(const Module& module) {
  const QuantGroup* group = module.quantization().group_of(module.stem());
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

Result<HostTensor> read_by_method(const Module& module) {
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
  const Module module(store, quantization, stem);
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
  if (quantization.ignores(stem))
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

#include <algorithm>
#include <cstring>

#include "models/quantized/grouped.h"
#include "models/quantized/packed_formats.h"

namespace sluice::models {

namespace {

constexpr int64_t kWordBits = 32;

uint32_t word_at(const TensorView& view, int64_t i, int64_t j) {
  uint32_t word;
  std::memcpy(&word, static_cast<const std::byte*>(view.data) + (i * view.dim(1) + j) * 4, 4);
  return word;
}

int field(uint32_t word, int64_t index, int bits) {
  return static_cast<int>(word >> (index * bits)) & ((1 << bits) - 1);
}

// Columns of a group and their number, or an error that names both.
Status set_groups(GroupedMatrix& m, int group_size, int64_t found, const std::string& scales) {
  m.group = group_size == 0 ? m.cols : group_size;
  m.groups = (m.cols + m.group - 1) / m.group;
  if (m.groups != found)
    return wrong_tensor(scales, "has {} groups, a group_size of {} over {} columns makes {}", found, m.group,
                        m.cols, m.groups);
  return {};
}

// order[k] is the group of column k; dropped where it says no more than their sequence does.
Status set_order(GroupedMatrix& m, const PackedModule& module, std::string_view suffix) {
  const std::optional<std::string> name = module.name(suffix);
  if (!name) return {};
  const Result<TensorView> view = module.tensor(suffix, DType::I32, 1);
  if (!view) return view.error();
  if (view->dim(0) != m.cols)
    return wrong_tensor(*name, "is {}, must have {} elements", view->describe(), m.cols);
  std::vector<int32_t> order(static_cast<size_t>(m.cols));
  std::memcpy(order.data(), view->data, order.size() * 4);
  bool plain = true;
  for (int64_t k = 0; k < m.cols; ++k) {
    const int32_t group = order[static_cast<size_t>(k)];
    if (group < 0 || group >= m.groups)
      return wrong_tensor(*name, "column {} is of group {}, there are {}", k, group, m.groups);
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
Status set_zeros(GroupedMatrix& m, const PackedModule& module, FunctionRef<int64_t(int64_t)> place,
                 int plus) {
  const Result<TensorView> view = module.tensor(".qzeros", DType::I32, 2);
  if (!view) return view.error();
  const int64_t fields = kWordBits / m.bits;
  if (view->dim(0) != m.groups || view->dim(1) != (m.rows + fields - 1) / fields)
    return wrong_tensor(*module.name(".qzeros"), "is {}, must be [{}, {}]", view->describe(), m.groups,
                        (m.rows + fields - 1) / fields);
  m.zeros.resize(static_cast<size_t>(m.rows * m.groups));
  for (int64_t g = 0; g < m.groups; ++g)
    for (int64_t n = 0; n < m.rows; ++n)
      m.zeros[static_cast<size_t>(n * m.groups + g)] = static_cast<uint8_t>(
          (field(word_at(*view, g, n / fields), place(n % fields), m.bits) + plus) & ((1 << m.bits) - 1));
  return {};
}

// What GPTQ and AWQ share: scales [groups, rows].
Status set_column_scales(GroupedMatrix& m, const PackedModule& module) {
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

// Scales [rows, groups], one per row, or one for all.
Status set_row_scales(GroupedMatrix& m, const PackedModule& module, int group_size) {
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

}  // namespace

Result<HostTensor> read_gptq(const PackedModule& module) {
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

Result<HostTensor> read_awq(const PackedModule& module) {
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

Result<HostTensor> read_packed(const PackedModule& module, const QuantGroup& group) {
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
    return wrong_tensor(module.stem(),
                        "quantization_config says symmetric is {}, and there is {} weight_zero_point",
                        group.symmetric, has_zeros ? "a" : "no");
  if (has_zeros) {
    const Result<TensorView> zeros = module.tensor(".weight_zero_point", DType::I32, 2);
    if (!zeros) return zeros.error();
    if (zeros->dim(0) != (m.rows + fields - 1) / fields || zeros->dim(1) != m.groups)
      return wrong_tensor(*module.name(".weight_zero_point"), "is {}, must be [{}, {}]", zeros->describe(),
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

Result<HostTensor> read_int8(const PackedModule& module, int group_size, std::vector<float> row_scales) {
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
      return wrong_tensor(*module.name(".weight_zero_point"), "is {}, must have {} elements",
                          zeros->describe(), m.rows * m.groups);
    const auto* from = static_cast<const uint8_t*>(zeros->data);
    for (int64_t i = 0; i < zeros->elements(); ++i) m.zeros.push_back(static_cast<uint8_t>(from[i] ^ 0x80));
  }
  const auto* from = static_cast<const uint8_t*>(view->data);
  return make_grouped(m, [&](int64_t first, int64_t count, uint8_t* out) {
    for (int64_t i = 0; i < count * m.cols; ++i)
      out[i] = static_cast<uint8_t>(from[first * m.cols + i] ^ 0x80);
  });
}

}  // namespace sluice::models

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

// Field `index` of a stream of fields in words, the first lowest; one may begin in a word and end in the next.
template <class Word>
int field(Word word, int64_t index, int bits) {
  const int64_t begin = index * bits, in_word = begin % kWordBits;
  uint32_t value = word(begin / kWordBits) >> in_word;
  if (in_word + bits > kWordBits) value |= word(begin / kWordBits + 1) << (kWordBits - in_word);
  return static_cast<int>(value & ((1u << bits) - 1));
}

// The first `count` fields of the stream, a byte each.
template <class Word>
void put_fields(Word word, int bits, int64_t count, uint8_t* out) {
  if (kWordBits % bits != 0) {
    for (int64_t k = 0; k < count; ++k) out[k] = static_cast<uint8_t>(field(word, k, bits));
    return;
  }
  const int64_t in_word = kWordBits / bits;
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t first = 0; first < count; first += in_word) {
    uint32_t left = word(first / in_word);
    for (int64_t k = first; k < std::min(first + in_word, count); ++k, left >>= bits)
      out[k] = static_cast<uint8_t>(left & mask);
  }
}

// In AWQ's words the field of a row among its eight.
constexpr int64_t awq_place(int64_t row) {
  return row % 2 * 4 + row / 2;
}

// Words k to k + count - 1, at most kWordsAtOnce, of a column of view [cols, rows / 8]: the codes of these columns of eight rows,
// which are cols apart in `out`.
constexpr int64_t kWordsAtOnce = 16;
void put_awq_words(const TensorView& view, int64_t k, int64_t column, int64_t count, uint8_t* out) {
  uint32_t words[kWordsAtOnce] = {};
  for (int64_t i = 0; i < count; ++i) words[i] = word_at(view, k + i, column);
  for (int64_t row = 0; row < 8; ++row) {
    uint8_t codes[kWordsAtOnce];
    for (int64_t i = 0; i < kWordsAtOnce; ++i)
      codes[i] = static_cast<uint8_t>(words[i] >> (4 * awq_place(row)) & 0xf);
    std::memcpy(out + row * view.dim(0), codes, static_cast<size_t>(count));
  }
}

int64_t words_for(int64_t fields, int bits) {
  return (fields * bits + kWordBits - 1) / kWordBits;
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

// order[k] is the group of column k; dropped where it says no more than their sequence does. -1 is what columns have that were
// never ordered.
Status set_order(GroupedMatrix& m, const PackedModule& module, std::string_view suffix, bool ordered) {
  const std::optional<std::string> name = module.name(suffix);
  if (!name && ordered)
    return Error{ErrorCode::Corrupt, fmt::format("module '{}' has no tensor '{}', which quantization_config "
                                                 "says gives the order of its columns",
                                                 module.stem(), suffix)};
  if (!name) return {};
  const Result<TensorView> view = module.tensor(suffix, DType::I32, 1);
  if (!view) return view.error();
  if (view->dim(0) != m.cols)
    return wrong_tensor(*name, "is {}, must have {} elements", view->describe(), m.cols);
  std::vector<int32_t> order(static_cast<size_t>(m.cols));
  std::memcpy(order.data(), view->data, order.size() * 4);
  if (std::all_of(order.begin(), order.end(), [](int32_t group) { return group == -1; })) return {};
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

// Zero points I32 [groups, rows * bits / 32] of GPTQ and AWQ, in whose words `place` gives the field of each row.
Status set_zeros(GroupedMatrix& m, const PackedModule& module, FunctionRef<int64_t(int64_t)> place,
                 int plus) {
  const Result<TensorView> view = module.tensor(".qzeros", DType::I32, 2);
  if (!view) return view.error();
  const int64_t words = words_for(m.rows, m.bits);
  if (view->dim(0) != m.groups || view->dim(1) != words)
    return wrong_tensor(*module.name(".qzeros"), "is {}, must be [{}, {}]", view->describe(), m.groups,
                        words);
  m.zeros.resize(static_cast<size_t>(m.rows * m.groups));
  for (int64_t g = 0; g < m.groups; ++g) {
    const auto word = [&](int64_t i) { return word_at(*view, g, i); };
    for (int64_t n = 0; n < m.rows; ++n)
      m.zeros[static_cast<size_t>(n * m.groups + g)] =
          static_cast<uint8_t>((field(word, place(n), m.bits) + plus) & ((1 << m.bits) - 1));
  }
  return {};
}

// What GPTQ and AWQ share: scales [groups, rows].
Status set_column_scales(GroupedMatrix& m, const PackedModule& module, int64_t wanted) {
  const std::optional<std::string> name = module.name(".scales");
  if (!name)
    return Error{ErrorCode::Corrupt, fmt::format("module '{}' has no tensor '.scales'", module.stem())};
  const int64_t group = wanted == 0 ? m.cols : wanted;
  const int64_t groups = (m.cols + group - 1) / group;
  Result<std::vector<float>> scales = module.floats(".scales", groups * m.rows);
  if (!scales) return scales.error();
  if (Status set = set_groups(m, static_cast<int>(wanted), groups, *name); !set) return set;
  m.scales = transposed(*scales, groups, m.rows);
  return {};
}

// Scales [rows, groups], one per row, or one for all.
Status set_row_scales(GroupedMatrix& m, const PackedModule& module, const QuantGroup& group) {
  const std::string name = module.name(".weight_scale").value_or(module.stem() + ".weight_scale");
  const int64_t groups = group.group_size == 0 ? 1 : (m.cols + group.group_size - 1) / group.group_size;
  const bool whole = group.tile.rows == ScaleTile::kWhole;
  const Result<std::vector<float>> one = module.floats(".weight_scale", 1);
  if (whole && !one) return one.error();
  if (one && m.rows * groups != 1 && (whole || group.tile.rows == 0)) {
    m.scales.assign(static_cast<size_t>(m.rows), one->front());
    return set_groups(m, 0, 1, name);
  }
  Result<std::vector<float>> scales = module.floats(".weight_scale", m.rows * groups);
  if (!scales) return scales.error();
  m.scales = std::move(*scales);
  return set_groups(m, group.group_size, groups, name);
}

Status check_symmetry(const PackedModule& module, const QuantGroup& group) {
  const bool has_zeros = module.name(".weight_zero_point").has_value();
  if (group.symmetric != has_zeros) return {};
  return wrong_tensor(module.stem(),
                      "quantization_config says symmetric is {}, and there is {} weight_zero_point",
                      group.symmetric, has_zeros ? "a" : "no");
}

// weight_zero_point of either form, I8 around 0: one for each scale.
Status set_plain_zeros(GroupedMatrix& m, const PackedModule& module) {
  const std::string name = *module.name(".weight_zero_point");
  const Result<TensorView> view = module.tensor(".weight_zero_point", DType::I8);
  if (!view) return view.error();
  const int64_t count = m.rows * m.groups;
  if (view->elements() != count && view->elements() != 1)
    return wrong_tensor(name, "is {}, must have {} elements", view->describe(), count);
  const auto* from = static_cast<const int8_t*>(view->data);
  const int middle = 1 << (m.bits - 1);
  for (int64_t i = 0; i < count; ++i) {
    const int zero = from[view->elements() == 1 ? 0 : i] + middle;
    if (zero < 0 || zero >= 2 * middle)
      return wrong_tensor(name, "holds {}, must be {} to {}", zero - middle, -middle, middle - 1);
    m.zeros.push_back(static_cast<uint8_t>(zero));
  }
  return {};
}

// I32 [rows * bits / 32, groups], packed along the rows.
Status set_packed_zeros(GroupedMatrix& m, const PackedModule& module) {
  const Result<TensorView> view = module.tensor(".weight_zero_point", DType::I32, 2);
  if (!view) return view.error();
  const int64_t words = words_for(m.rows, m.bits);
  if (view->dim(0) != words || view->dim(1) != m.groups)
    return wrong_tensor(*module.name(".weight_zero_point"), "is {}, must be [{}, {}]", view->describe(),
                        words, m.groups);
  m.zeros.resize(static_cast<size_t>(m.rows * m.groups));
  for (int64_t g = 0; g < m.groups; ++g) {
    const auto word = [&](int64_t i) { return word_at(*view, i, g); };
    for (int64_t n = 0; n < m.rows; ++n)
      m.zeros[static_cast<size_t>(n * m.groups + g)] = static_cast<uint8_t>(field(word, n, m.bits));
  }
  return {};
}

// Rows and columns by weight_shape, which the last word of a row may have more fields than.
Status set_sides(GroupedMatrix& m, const PackedModule& module, const TensorView& packed) {
  m.rows = packed.dim(0);
  m.cols = packed.dim(1) * kWordBits / m.bits;
  const auto sides = module.shape();
  if (!sides) return sides.error();
  if (!sides->has_value()) return {};
  const auto [rows, cols] = **sides;
  if (rows != m.rows || cols > m.cols || words_for(cols, m.bits) != packed.dim(1))
    return wrong_tensor(*module.name(".weight_shape"), "is [{}, {}], weight_packed is {} of {} bits", rows,
                        cols, packed.describe(), m.bits);
  m.cols = cols;
  return {};
}

// Codes around 0, as I8.
QuantizedMatrix make_bytes(const GroupedMatrix& m, const TensorView& view) {
  const auto* from = static_cast<const uint8_t*>(view.data);
  return make_grouped(m, [&](int64_t first, int64_t count, uint8_t* out) {
    for (int64_t i = 0; i < count * m.cols; ++i)
      out[i] = static_cast<uint8_t>(from[first * m.cols + i] ^ 0x80);
  });
}

}  // namespace

Result<QuantizedMatrix> read_gptq(const PackedModule& module) {
  const Result<TensorView> view = module.tensor(".qweight", DType::I32, 2);
  if (!view) return view.error();
  const Result<IntegerPacking> packing = module.quantization().packing_of(module.names());
  if (!packing) return packing.error();
  GroupedMatrix m;
  m.bits = packing->bits;
  m.rows = view->dim(1);
  m.cols = view->dim(0) * kWordBits / m.bits;
  if (m.cols * m.bits != view->dim(0) * kWordBits)
    return wrong_tensor(*module.name(".qweight"), "is {}, which is no whole number of {} bits",
                        view->describe(), m.bits);
  if (Status set = set_column_scales(m, module, packing->group_size); !set) return set.error();
  if (Status set = set_order(m, module, ".g_idx", packing->ordered); !set) return set.error();
  const auto plain = [](int64_t i) { return i; };
  if (Status set = set_zeros(m, module, plain, module.quantization().zeros_less_one ? 1 : 0); !set)
    return set.error();
  return make_grouped(m, [&](int64_t first, int64_t count, uint8_t* out) {
    for (int64_t n = 0; n < count; ++n)
      put_fields([&](int64_t i) { return word_at(*view, i, first + n); }, m.bits, m.cols, out + n * m.cols);
  });
}

Result<QuantizedMatrix> read_awq(const PackedModule& module) {
  const Result<TensorView> view = module.tensor(".qweight", DType::I32, 2);
  if (!view) return view.error();
  const Result<IntegerPacking> packing = module.quantization().packing_of(module.names());
  if (!packing) return packing.error();
  if (packing->bits != 4)
    return wrong_tensor(*module.name(".qweight"), "quantization_config says {} bits, must be 4",
                        packing->bits);
  GroupedMatrix m;
  m.rows = view->dim(1) * 8;
  m.cols = view->dim(0);
  const auto place = [](int64_t i) { return i / 8 * 8 + awq_place(i % 8); };
  if (Status set = set_column_scales(m, module, packing->group_size); !set) return set.error();
  if (module.quantization().has_zeros || module.name(".qzeros"))
    if (Status set = set_zeros(m, module, place, 0); !set) return set.error();
  return make_grouped(m, [&](int64_t first, int64_t count, uint8_t* out) {
    for (int64_t n = 0; n < count; n += 8)
      for (int64_t k = 0; k < m.cols; k += kWordsAtOnce)
        put_awq_words(*view, k, (first + n) / 8, std::min(kWordsAtOnce, m.cols - k), out + n * m.cols + k);
  });
}

Result<QuantizedMatrix> read_packed(const PackedModule& module, const QuantGroup& group) {
  const Result<TensorView> view = module.tensor(".weight_packed", DType::I32, 2);
  if (!view) return view.error();
  GroupedMatrix m;
  m.bits = group.bits;
  if (Status set = set_sides(m, module, *view); !set) return set.error();
  if (Status set = set_row_scales(m, module, group); !set) return set.error();
  if (Status set = set_order(m, module, ".weight_g_idx", group.ordered); !set) return set.error();
  if (Status status = check_symmetry(module, group); !status) return status.error();
  if (!group.symmetric) {
    const bool packed = group.tile.rows != ScaleTile::kWhole;
    if (Status set = packed ? set_packed_zeros(m, module) : set_plain_zeros(m, module); !set)
      return set.error();
  }
  return make_grouped(m, [&](int64_t first, int64_t count, uint8_t* out) {
    for (int64_t n = 0; n < count; ++n)
      put_fields([&](int64_t i) { return word_at(*view, first + n, i); }, m.bits, m.cols, out + n * m.cols);
  });
}

// Of eight bits, whatever the integers are rounded to.
Result<QuantizedMatrix> read_int8(const PackedModule& module, const QuantGroup& group) {
  const Result<TensorView> view = module.tensor(".weight", DType::I8, 2);
  if (!view) return view.error();
  GroupedMatrix m;
  m.bits = 8;
  m.rows = view->dim(0);
  m.cols = view->dim(1);
  if (Status set = set_row_scales(m, module, group); !set) return set.error();
  if (Status status = check_symmetry(module, group); !status) return status.error();
  if (!group.symmetric)
    if (Status set = set_plain_zeros(m, module); !set) return set.error();
  return make_bytes(m, *view);
}

Result<QuantizedMatrix> read_int8(const PackedModule& module, std::vector<float> row_scales) {
  const Result<TensorView> view = module.tensor(".weight", DType::I8, 2);
  if (!view) return view.error();
  GroupedMatrix m;
  m.bits = 8;
  m.rows = view->dim(0);
  m.cols = m.group = view->dim(1);
  m.groups = 1;
  m.scales = std::move(row_scales);
  return make_bytes(m, *view);
}

}  // namespace sluice::models

#include "models/loading/binder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "models/quantized/grouped.h"
#include "models/quantized/quantized_matrix.h"
#include "models/quantized/unpack.h"
#include "tensor/repack.h"

namespace sluice::models {

namespace {

// The types of its parts, neighbours that share one once. Plain numbers are one: back-ends bring them to a type of their own.
std::string types_of(const Weight& weight) {
  std::string types;
  std::string_view last;
  for (const TensorView& part : weight.parts) {
    const std::string_view type = is_block(part.dtype) ? name(part.dtype) : "plain numbers";
    if (type != last) types += fmt::format("{}{}", types.empty() ? "" : " and ", type);
    last = type;
  }
  return types;
}

void replace(std::string& text, std::string_view mark, int value) {
  if (const size_t at = text.find(mark); at != std::string::npos)
    text.replace(at, mark.size(), std::to_string(value));
}

}  // namespace

void Binder::fail(std::string message) {
  if (status_.ok()) status_ = Error{ErrorCode::Corrupt, std::move(message)};
}

void Binder::fail_empty(WeightSlot slot, int64_t elements) {
  fail(fmt::format("{}: the file has nothing, {} elements are needed", where(slot), elements));
}

std::string Binder::where(WeightSlot slot) const {
  return layer_ < 0 ? std::string(name(slot)) : fmt::format("{} of layer {}", name(slot), layer_);
}

std::string Binder::full_name(std::string_view stem, int expert) const {
  std::string text(stem);
  const size_t layer = prefix_.empty() ? std::string::npos : text.find("{l}");
  if (layer != std::string::npos) text.replace(0, layer + 3, prefix_);
  replace(text, "{l}", layer_);
  replace(text, "{e}", expert);
  return text;
}

bool Binder::has(WeightSlot slot) const {
  for (const NameRow& row : names_.rows(slot))
    if (has_matrix(store_, full_name(row.stem, 0))) return true;
  return false;
}

std::optional<TensorView> Binder::stored(WeightSlot slot) {
  for (const NameRow& row : names_.rows(slot))
    if (const std::optional<Part> found = part(row, -1, 0)) return in_order_of_x({found->view, found->order});
  return std::nullopt;
}

// One slice of the first dimension.
std::optional<TensorView> Binder::slice(const std::string& tensor, TensorView view, int expert) {
  if (expert < 0 || expert >= view.dim(0)) {
    fail(fmt::format("tensor '{}' is {}: it has no slice {}", tensor, view.describe(), expert));
    return std::nullopt;
  }
  const std::vector<int64_t> shape(view.shape.begin() + 1, view.shape.begin() + view.rank);
  const int64_t bytes = row_bytes(view.dtype, view.elements() / view.dim(0));
  return TensorView::contiguous(static_cast<std::byte*>(view.data) + expert * bytes, view.dtype, shape);
}

// The stored tensor of that rank; of one that all experts share, a slice where it has a rank more, else one of
// as many equal parts as there are experts.
std::optional<TensorView> Binder::stored_of_rank(const std::string& tensor, int rank, int expert) {
  Result<TensorView> found = store_.find(tensor);
  if (!found) {
    fail(found.error().message);
    return std::nullopt;
  }
  if (found->rank == rank && expert >= 0 && found->dim(0) % bank_ == 0) {
    const int64_t rows = found->dim(0) / bank_;
    return found->rows(expert * rows, (expert + 1) * rows);
  }
  if (found->rank == rank && expert < 0) return *found;
  if (found->rank == 1 && rank == 2)  // GGUF drops the first of two dimensions where it is 1
    return TensorView::contiguous(found->data, found->dtype, {1, found->dim(0)});
  if (found->rank == rank + 1) return slice(tensor, *found, expert);
  fail(fmt::format("tensor '{}' is {}, must have rank {}", tensor, found->describe(), rank));
  return std::nullopt;
}

std::vector<float> Binder::bias_of(const NameRow& row, const std::string& stem, int expert, int64_t rows) {
  std::optional<std::string> found = locate(stem, ".bias");
  if (!found) found = locate(stem, "_bias");
  if (!found) return {};
  Result<TensorView> view = store_.find(*found);
  if (!view) {
    fail(view.error().message);
    return {};
  }
  TensorView bias = *view;
  if (bias.rank == 2 && expert >= 0 && expert < bias.dim(0)) bias = bias.rows(expert, expert + 1);
  std::vector<float> folded;
  if (!is_block(bias.dtype)) folded = fold_vector(bias, row.fold, qkv_);
  if (static_cast<int64_t>(folded.size()) != rows) {
    fail(fmt::format("tensor '{}' is {}, must have {} elements", *found, view->describe(), rows));
    return {};
  }
  return folded;
}

std::optional<TensorView> Binder::taken(const std::string& tensor, Result<HostTensor> made) {
  if (made) return keep(std::move(*made));
  fail(fmt::format("tensor '{}': {}", tensor, made.error().message));
  return std::nullopt;
}

std::optional<TensorView> Binder::packed_blocks(const NameRow& row, const std::string& stem, int expert) {
  const std::optional<std::string> blocks = locate(stem, "_blocks"), scales = locate(stem, "_scales");
  if (!blocks || !scales) return std::nullopt;
  const std::optional<TensorView> values = stored_of_rank(*blocks, 3, expert);
  const std::optional<TensorView> factors = stored_of_rank(*scales, 2, expert);
  if (!values || !factors) return std::nullopt;
  return taken(*blocks, pack_mxfp4(*values, *factors, row.fold == Fold::SplitPairs));
}

std::optional<TensorView> Binder::scaled(const std::string& stem, TensorView values, int expert) {
  if (values.dtype != DType::F8_E4M3) return values;
  std::optional<std::string> found;
  for (const char* suffix : {".weight_scale_inv", ".weight_scale", "_scale_inv", "_scale"})
    if (!found) found = locate(stem, suffix);
  if (!found && quantization_.method == Quantization::Method::None) return values;
  if (!found) {
    fail(
        fmt::format("module '{}' is F8_E4M3, and has neither '.weight_scale' nor '.weight_scale_inv'", stem));
    return std::nullopt;
  }
  if (Status status = check_quantized(store_, quantization_, stem); !status) {
    fail(status.error().message);
    return std::nullopt;
  }
  const Result<TensorView> scales = store_.find(*found);
  if (!scales) {
    fail(scales.error().message);
    return std::nullopt;
  }
  const bool shared = expert >= 0 && scales->rank > 0 && scales->dim(0) == bank_;
  const std::optional<TensorView> factors =
      shared ? slice(*found, *scales, expert) : std::optional<TensorView>(*scales);
  if (!factors) return std::nullopt;
  if (!std::exchange(told_of_f8_, true))
    log_info("weights in F8_E4M3 are multiplied with their scales and kept in memory as F16");
  const Result<ScaleTile> tile = quantization_.tile_of(spellings(stem));
  return taken(*found, tile ? unpack_f8(values, *factors, *tile) : tile.error());
}

std::optional<Binder::OrderedView> Binder::quantized(const std::string& stem) {
  Result<std::optional<QuantizedMatrix>> made = read_quantized(store_, quantization_, stem);
  if (!made) {
    fail(made.error().message);
    return std::nullopt;
  }
  if (!made->has_value()) return std::nullopt;
  std::vector<int32_t>& columns = (*made)->columns;
  if (columns.empty()) return OrderedView{keep(std::move((*made)->tensor)), nullptr};
  if (order_ == nullptr || *order_ != columns)
    order_ = std::make_shared<const std::vector<int32_t>>(std::move(columns));
  return OrderedView{keep(std::move((*made)->tensor)), order_};
}

TensorView Binder::in_order_of_x(const OrderedView& matrix) {
  if (matrix.order == nullptr) return matrix.view;
  const TensorView view = keep(plain_in_order_of_x(matrix.view, *matrix.order));
  drop_copy(matrix.view);
  return view;
}

TensorView Binder::for_kernels(const std::string& stem, TensorView stored, int expert) {
  if (!is_file_only(stored.dtype)) return stored;
  float factor = 1.0f;
  if (const std::optional<std::string> name = locate(stem, ".scale"); name && stored.dtype == DType::NVFP4) {
    const Result<TensorView> scale = store_.find(*name);
    const int64_t count = expert < 0 ? 1 : bank_;
    if (!scale || scale->dtype != DType::F32 || (scale->elements() != count && scale->elements() != 1)) {
      fail(fmt::format("tensor '{}' is {}, must be F32[{}]", *name,
                       scale ? scale->describe() : scale.error().message, count));
      return stored;
    }
    std::memcpy(&factor, scale->at<float>() + (scale->elements() == 1 ? 0 : expert), sizeof factor);
  }
  return keep(repack_for_kernels(stored, factor));
}

std::optional<Binder::Part> Binder::part(const NameRow& row, int expert, int64_t cols) {
  const std::string stem = full_name(row.stem, expert);
  const bool own = row.stem.find("{e}") != std::string_view::npos;
  const int place = own ? -1 : expert;  // in a tensor that all experts share
  std::optional<std::string> found = locate(stem, ".weight");
  if (!found) found = locate(stem, "");
  const std::optional<OrderedView> made = quantized(stem);
  if (!status_.ok()) return std::nullopt;
  Part result;
  if (made && row.fold != Fold::UnitRows) result.order = made->order;
  if (!found && !made) {
    const std::optional<TensorView> packed = packed_blocks(row, stem, place);
    if (!packed) return std::nullopt;
    result.view = *packed;
  } else {
    if (!found) found = stem;
    std::optional<TensorView> view = !made          ? stored_of_rank(*found, 2, place)
                                     : result.order ? made->view
                                                    : in_order_of_x(*made);
    if (view && !made) view = scaled(stem, *view, place);
    if (view) view = for_kernels(stem, *view, place);
    // What is packed has rows of outputs, however the plain matrix lies.
    const bool fits =
        view && row.fold == Fold::Transpose && (made || (view->dim(1) == cols && view->dim(0) != cols));
    if (view && row.fold != Fold::None && row.fold != Fold::AddOne && !fits) {
      const TensorView unfolded = *view;
      view = taken(*found, fold_matrix(unfolded, row.fold, qkv_));
      drop_copy(unfolded);
    }
    if (!view) return std::nullopt;
    result.view = *view;
  }
  result.bias = bias_of(row, stem, expert, result.view.dim(0));
  result.stored = {found.value_or(stem), std::max(0, place)};
  return result;
}

Weight Binder::stack(WeightSlot slot, const std::vector<Part>& parts, Extent extent, const Cut& cut) {
  Weight weight;
  weight.cols = extent.cols;
  bool has_bias = false;
  std::string found;
  for (const Part& part : parts) {
    found += fmt::format("{}{}", found.empty() ? "" : " + ", part.view.describe());
    const DType type = part.view.dtype;
    if (type == DType::U8 || type == DType::I8 || type == DType::I32)
      fail(fmt::format("{}: {}, which is not a type of weights", where(slot), found));
    if (part.view.dim(1) != extent.cols)
      fail(fmt::format("{}: {}, must have {} columns", where(slot), found, extent.cols));
    weight.rows += part.view.dim(0);
    weight.parts.push_back(part.view);
    weight.stored.push_back(part.stored);
    weight.orders.push_back(part.order);
    has_bias = has_bias || !part.bias.empty();
  }
  if (!kernels::is_ordered(weight)) weight.orders.clear();
  if (weight.rows != extent.rows)
    fail(fmt::format("{}: the file has {}, the architecture needs [{}, {}]", where(slot),
                     found.empty() ? "nothing" : found, extent.rows, extent.cols));
  if (has_bias && status_.ok()) {
    std::vector<float> bias;
    for (const Part& part : parts) {
      if (part.bias.empty()) bias.resize(bias.size() + static_cast<size_t>(part.view.dim(0)), 0.0f);
      bias.insert(bias.end(), part.bias.begin(), part.bias.end());
    }
    if (cut.bias) weight.bias = upload(kept_rows(bias, cut));
  }
  return kept(slot, std::move(weight), cut);
}

std::vector<Binder::Part> Binder::parts_of(WeightSlot slot, int number, int64_t cols) {
  std::vector<Part> parts;
  for (const NameRow& row : names_.rows(slot))
    if (std::optional<Part> found = part(row, number, cols)) parts.push_back(std::move(*found));
  return parts;
}

Weight Binder::matrix(WeightSlot slot, Extent extent, const Cut& cut, int number) {
  const bool table = slot == WeightSlot::TokenEmbedding || slot == WeightSlot::PositionEmbedding ||
                     slot == WeightSlot::LayerInputTable;
  std::vector<Part> parts = parts_of(slot, number, extent.cols);
  for (Part& one : parts)  // rows of tables are looked up as they are
    if (table) one = {in_order_of_x({one.view, one.order}), one.bias, one.stored, nullptr};
  Weight weight = stack(slot, parts, extent, cut);
  weight.table = table;
  return status_.ok() ? prepared(std::move(weight)) : Weight();
}

Weight Binder::listed_matrix(WeightSlot slot, Extent extent, const Cut& cut) {
  Weight weight = stack(slot, parts_of(slot, -1, extent.cols), extent, cut);
  weight.listed = true;
  return status_.ok() ? prepared(std::move(weight)) : Weight();
}

Weight Binder::joined(const std::vector<SlotRows>& slots, int64_t cols) {
  std::vector<Part> parts;
  Cut cut;
  int64_t rows = 0;
  for (const SlotRows& of : slots) {
    int64_t found = 0;
    for (Part& one : parts_of(of.slot, -1, cols)) {
      found += one.view.dim(0);
      parts.push_back(std::move(one));
    }
    if (found != of.count)
      fail(fmt::format("{}: the file has {} rows, the architecture needs [{}, {}]", where(of.slot), found,
                       of.count, cols));
    if (of.kept.empty()) cut.rows.push_back({rows, rows + of.count});
    for (const dist::Range& kept : of.kept) cut.rows.push_back({rows + kept.begin, rows + kept.end});
    rows += of.count;
  }
  const bool whole = std::ranges::all_of(slots, [](const SlotRows& of) { return of.kept.empty(); });
  Weight weight = stack(slots.front().slot, parts, {rows, cols}, whole ? Cut() : cut);
  weight.joined = true;
  return status_.ok() ? prepared(std::move(weight)) : Weight();
}

std::vector<Weight> Binder::bank(WeightSlot slot, int count, Extent extent, const Cut& cut,
                                 std::optional<dist::Range> entries) {
  std::vector<Weight> weights;
  bank_ = std::max(1, count);
  const dist::Range taken = entries.value_or(dist::Range{0, count});
  const bool experts = slot == WeightSlot::ExpertGateUp || slot == WeightSlot::ExpertDown;
  std::map<std::string, int> types;  // how many weights have them
  for (auto expert = static_cast<int>(taken.begin); expert < taken.end && status_.ok(); ++expert) {
    std::vector<Part> parts = parts_of(slot, expert, extent.cols);
    for (Part& one : parts)  // heads read columns as they are
      if (!experts) one = {in_order_of_x({one.view, one.order}), one.bias, one.stored, nullptr};
    Weight weight = stack(slot, parts, extent, cut);
    weight.listed = true;
    ++types[types_of(weight)];
    if (status_.ok()) weights.push_back(prepared(std::move(weight)));
  }
  if (types.size() > 1 && status_.ok()) tell_of_types(slot, types);
  return weights;
}

// Of the first layer on a device, of the others for those who ask for more.
void Binder::tell_of_types(WeightSlot slot, const std::map<std::string, int>& types) {
  std::string counts;
  for (const auto& [names, count] : types)
    counts += fmt::format("{}{} in {}", counts.empty() ? "" : ", ", count, names);
  const bool told = backend_.async_device() == nullptr || std::exchange(told_of_types_, true);
  log_message(told ? LogLevel::Debug : LogLevel::Info,
              fmt::format("{}: {}; they are multiplied type by type", where(slot), counts));
}

TensorView Binder::upload(const std::vector<float>& values) {
  const auto size = static_cast<int64_t>(values.size());
  kernels::Memory memory =
      backend_.upload(TensorView::contiguous(const_cast<float*>(values.data()), DType::F32, {size}));
  out_.owners.push_back(memory.owner);
  return memory.view;
}

}  // namespace sluice::models

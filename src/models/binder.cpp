#include "models/binder.h"

#include <fmt/format.h>

#include <cstring>

namespace sluice::models {

namespace {

void replace(std::string& text, std::string_view mark, int value) {
  if (const size_t at = text.find(mark); at != std::string::npos)
    text.replace(at, mark.size(), std::to_string(value));
}

// The same tensor under the prefixes that exports of one family differ in: with the decoder's name left out,
// and beside a vision tower.
std::vector<std::string> spellings(const std::string& stem) {
  std::vector<std::string> out{stem};
  const size_t dot = stem.find('.');
  if (dot == std::string::npos) {
    out.push_back("language_model." + stem);
    return out;
  }
  out.push_back(stem.substr(dot + 1));
  out.push_back("language_model." + stem);
  if (stem.starts_with("model.")) out.push_back("model.language_model." + stem.substr(6));
  return out;
}

}  // namespace

std::optional<std::string> locate_tensor(const formats::TensorStore& store, const std::string& stem,
                                         std::string_view suffix) {
  for (const std::string& spelling : spellings(stem)) {
    std::string full = spelling + std::string(suffix);
    if (store.contains(full)) return full;
  }
  return std::nullopt;
}

void Binder::fail(std::string message) {
  if (status_.ok()) status_ = Error{ErrorCode::Corrupt, std::move(message)};
}

std::string Binder::where(Slot slot) const {
  return layer_ < 0 ? std::string(name(slot)) : fmt::format("{} of layer {}", name(slot), layer_);
}

std::string Binder::full_name(std::string_view stem, int expert) const {
  std::string text(stem);
  replace(text, "{l}", layer_);
  replace(text, "{e}", expert);
  return text;
}

bool Binder::has(Slot slot) const {
  for (const NameRow& row : names_.rows(slot)) {
    const std::string stem = full_name(row.stem, 0);
    if (locate(stem, ".weight") || locate(stem, "")) return true;
  }
  return false;
}

std::optional<TensorView> Binder::stored(Slot slot) const {
  for (const NameRow& row : names_.rows(slot)) {
    const std::string stem = full_name(row.stem, 0);
    std::optional<std::string> found = locate(stem, ".weight");
    if (!found) found = locate(stem, "");
    if (!found) continue;
    if (Result<TensorView> view = store_.find(*found); view.ok()) return *view;
  }
  return std::nullopt;
}

// A whole rank-2 tensor, or one slice of a rank-3 tensor.
std::optional<TensorView> Binder::slice(const std::string& tensor, int expert) {
  Result<TensorView> found = store_.find(tensor);
  if (!found) {
    fail(found.error().message);
    return std::nullopt;
  }
  TensorView view = *found;
  if (view.rank == 2) return view;
  if (view.rank != 3 || expert < 0 || expert >= view.dim(0)) {
    fail(fmt::format("tensor '{}' is {}: not a matrix, or no slice {}", tensor, view.describe(), expert));
    return std::nullopt;
  }
  const int64_t bytes = row_bytes(view.dtype, view.dim(1) * view.dim(2));
  return TensorView::contiguous(static_cast<std::byte*>(view.data) + expert * bytes, view.dtype,
                                {view.dim(1), view.dim(2)});
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
  if (bias.elements() != rows || is_block(bias.dtype)) {
    fail(fmt::format("tensor '{}' is {}, must have {} elements", *found, view->describe(), rows));
    return {};
  }
  return fold_vector(bias, row.fold, qkv_);
}

std::optional<Binder::Part> Binder::part(const NameRow& row, int expert) {
  const std::string stem = full_name(row.stem, expert);
  std::optional<std::string> found = locate(stem, ".weight");
  if (!found) found = locate(stem, "");
  if (!found) return std::nullopt;
  std::optional<TensorView> view = slice(*found, expert);
  if (!view) return std::nullopt;
  Part result{*view, {}};
  if (row.fold != Fold::None && row.fold != Fold::AddOne) {
    Result<HostTensor> folded = fold_matrix(*view, row.fold, qkv_);
    if (!folded) {
      fail(fmt::format("tensor '{}': {}", *found, folded.error().message));
      return std::nullopt;
    }
    result.view = keep(std::move(*folded));
  }
  result.bias = bias_of(row, stem, expert, result.view.dim(0));
  return result;
}

Weight Binder::stack(Slot slot, const std::vector<Part>& parts, Extent extent) {
  Weight weight;
  weight.cols = extent.cols;
  bool has_bias = false;
  std::string found;
  for (const Part& part : parts) {
    found += fmt::format("{}{}", found.empty() ? "" : " + ", part.view.describe());
    if (part.view.dim(1) != extent.cols)
      fail(fmt::format("{}: {}, must have {} columns", where(slot), found, extent.cols));
    weight.rows += part.view.dim(0);
    weight.parts.push_back(part.view);
    has_bias = has_bias || !part.bias.empty();
  }
  if (weight.rows != extent.rows)
    fail(fmt::format("{}: the file has {}, the architecture needs [{}, {}]", where(slot),
                     found.empty() ? "nothing" : found, extent.rows, extent.cols));
  if (has_bias && status_.ok()) {
    std::vector<float> bias;
    for (const Part& part : parts) {
      if (part.bias.empty()) bias.resize(bias.size() + static_cast<size_t>(part.view.dim(0)), 0.0f);
      bias.insert(bias.end(), part.bias.begin(), part.bias.end());
    }
    weight.bias = upload(bias);
  }
  return weight;
}

Weight Binder::matrix(Slot slot, Extent extent) {
  std::vector<Part> parts;
  for (const NameRow& row : names_.rows(slot))
    if (std::optional<Part> found = part(row, -1)) parts.push_back(std::move(*found));
  Weight weight = stack(slot, parts, extent);
  return status_.ok() ? backend_.prepare(std::move(weight)) : Weight();
}

std::vector<Weight> Binder::bank(Slot slot, int count, Extent extent) {
  std::vector<Weight> weights;
  const std::vector<NameRow> rows = names_.rows(slot);
  for (int expert = 0; expert < count && status_.ok(); ++expert) {
    std::vector<Part> parts;
    for (const NameRow& row : rows)
      if (std::optional<Part> found = part(row, expert)) parts.push_back(std::move(*found));
    Weight weight = stack(slot, parts, extent);
    if (status_.ok()) weights.push_back(backend_.prepare(std::move(weight)));
  }
  return weights;
}

std::optional<TensorView> Binder::stored_vector(const NameRow& row, int part, std::string_view suffix) {
  const std::string stem = full_name(row.stem, part);
  std::optional<std::string> found = locate(stem, suffix);
  if (!found && suffix == ".weight") found = locate(stem, "");
  if (!found) return std::nullopt;
  Result<TensorView> view = store_.find(*found);
  if (!view) {
    fail(view.error().message);
    return std::nullopt;
  }
  if (is_block(view->dtype)) {
    fail(fmt::format("tensor '{}' is {}, must be of a plain type", *found, view->describe()));
    return std::nullopt;
  }
  return *view;
}

std::vector<float> Binder::host_vector(Slot slot, int64_t elements, std::string_view suffix) {
  for (const NameRow& row : names_.rows(slot)) {
    const Fold fold = suffix == ".weight" ? row.fold : Fold::None;
    const bool many = row.stem.find("{e}") != std::string_view::npos;
    std::vector<float> values;
    int64_t stored = 0;
    for (int part = 0; stored < elements && (part == 0 || many); ++part) {
      const std::optional<TensorView> view = stored_vector(row, part, suffix);
      if (!view || view->elements() == 0) break;
      stored += view->elements();
      if (stored > elements) break;
      const std::vector<float> read = fold_vector(*view, fold, qkv_);
      values.insert(values.end(), read.begin(), read.end());
    }
    if (stored == 0) continue;
    if (stored == elements) return values;
    fail(fmt::format("{}: the file has {}{} elements, the architecture needs {}", where(slot),
                     stored > elements ? "at least " : "", stored, elements));
    return {};
  }
  return {};
}

TensorView Binder::optional_vector(Slot slot, int64_t elements, std::string_view suffix) {
  const std::vector<float> values = host_vector(slot, elements, suffix);
  return values.empty() ? TensorView() : upload(values);
}

TensorView Binder::vector(Slot slot, int64_t elements, std::string_view suffix) {
  TensorView view = optional_vector(slot, elements, suffix);
  if (view.empty() && status_.ok())
    fail(fmt::format("{}: the file has nothing, {} elements are needed", where(slot), elements));
  return view;
}

TensorView Binder::upload(const std::vector<float>& values) {
  const auto size = static_cast<int64_t>(values.size());
  kernels::Memory memory =
      backend_.upload(TensorView::contiguous(const_cast<float*>(values.data()), DType::F32, {size}));
  out_.owners.push_back(memory.owner);
  return memory.view;
}

TensorView Binder::keep(HostTensor tensor) {
  const TensorView view = tensor.view;
  out_.owners.push_back(std::make_shared<HostTensor>(std::move(tensor)));
  return view;
}

}  // namespace sluice::models

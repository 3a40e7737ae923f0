// Vectors and the kernels of convolutions, which are f32 whatever the file has.
#include <fmt/format.h>

#include "models/loading/binder.h"
#include "tensor/blocks.h"

namespace sluice::models {

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

std::vector<float> Binder::host_vector(WeightSlot slot, int64_t elements, std::string_view suffix) {
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

kernels::CausalConv Binder::convolution(int64_t taps, int64_t channels, const Cut& kept) {
  std::vector<float> stored, bias;
  bool whole = true;
  for (const NameRow& row : names_.rows(WeightSlot::ConvKernel)) {
    const std::optional<TensorView> kernel = stored_vector(row, 0, ".weight"),
                                    added = stored_vector(row, 0, ".bias");
    if (!kernel) continue;
    const std::vector<float> values = fold_vector(*kernel, Fold::None, qkv_);
    stored.insert(stored.end(), values.begin(), values.end());
    whole = whole && kernel->dim(-1) == taps;
    if (!added) continue;
    const std::vector<float> more = fold_vector(*added, Fold::None, qkv_);
    bias.insert(bias.end(), more.begin(), more.end());
  }
  if (!whole || static_cast<int64_t>(stored.size()) != taps * channels ||
      (!bias.empty() && static_cast<int64_t>(bias.size()) != channels)) {
    fail(fmt::format("{}: the file has {} elements and {} of bias, the architecture needs [{}, {}]",
                     where(WeightSlot::ConvKernel), stored.size(), bias.size(), channels, taps));
    return {};
  }
  Cut rows = kept;  // of the kernel, which has one for each tap
  for (dist::Range& range : rows.rows) range = {range.begin * taps, range.end * taps};
  stored = kept_rows(stored, rows);
  bias = bias.empty() ? bias : kept_rows(bias, kept);
  channels = static_cast<int64_t>(stored.size()) / taps;
  std::vector<float> kernel(stored.size());
  for (int64_t i = 0; i < taps * channels; ++i)
    kernel[static_cast<size_t>(i % taps * channels + i / taps)] = stored[static_cast<size_t>(i)];
  const TensorView flat = upload(kernel);
  return {.kernel = TensorView::contiguous(flat.data, flat.dtype, {taps, channels}, flat.device),
          .bias = bias.empty() ? TensorView() : upload(bias)};
}

TensorView Binder::optional_vector(WeightSlot slot, int64_t elements, std::string_view suffix) {
  const std::vector<float> values = host_vector(slot, elements, suffix);
  return values.empty() ? TensorView() : upload(values);
}

TensorView Binder::vector(WeightSlot slot, int64_t elements, std::string_view suffix) {
  TensorView view = optional_vector(slot, elements, suffix);
  if (view.empty() && status_.ok()) fail_empty(slot, elements);
  return view;
}

TensorView Binder::vector(WeightSlot slot, int64_t elements, const Cut& rows) {
  const std::vector<float> values = host_vector(slot, elements);
  if (!values.empty()) return upload(kept_rows(values, rows));
  if (status_.ok()) fail_empty(slot, elements);
  return {};
}

}  // namespace sluice::models

#include "models/model_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace sluice::models {

namespace {

std::span<float> floats_of(TensorView x) {
  SLUICE_CHECK(x.dtype == DType::F32 && x.device == Device::Cpu && x.is_contiguous());
  return {static_cast<float*>(x.data), static_cast<size_t>(x.elements())};
}

}  // namespace

ModelGroup::ModelGroup(std::shared_ptr<dist::Communicator> world, const Cuts& cuts)
    : world_(std::move(world)),
      placement_(placement_of(world_->rank(), cuts)),
      group_(*world_, placement_.stage.index * cuts.group(), cuts.group()) {
  SLUICE_CHECK_EQ(world_->size(), cuts.ranks());
}

ModelGroup::~ModelGroup() {
  if (!leads() || abandoned_) return;
  try {
    for (int rank = 1; rank < world_->size(); ++rank) world_->send_message(rank, {});
  } catch (const std::exception& problem) {
    log_error("{}", problem.what());
  }
}

void ModelGroup::abandon() {
  abandoned_ = true;
  world_->abandon();
}

void ModelGroup::add_up(TensorView x) {
  group_.all_reduce(floats_of(x));
}

void ModelGroup::gather_tokens(TensorView x) {
  group_.all_gather(floats_of(x), x.dim(1));
}

void ModelGroup::add_up_tokens(TensorView x) {
  group_.reduce_scatter(floats_of(x), x.dim(1));
}

void ModelGroup::exchange_tokens(TensorView parts, TensorView x) {
  group_.all_to_all(floats_of(x), x.dim(1), floats_of(parts));
}

// Sums of one row and of zeros.
void ModelGroup::collect_rows(TensorView out, TensorView own, Range range, std::span<const int32_t> rows) {
  const std::span<float> values = floats_of(out);
  std::fill(values.begin(), values.end(), 0.0f);
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] >= range.begin && rows[i] < range.end)
      std::copy_n(own.at<float>(rows[i] - range.begin), out.dim(1), out.at<float>(static_cast<int64_t>(i)));
  group_.all_reduce(values);
}

void ModelGroup::gather_columns(TensorView out, TensorView part) {
  if (group_.rank() > 0) return group_.send(0, std::as_bytes(floats_of(part)));
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Range columns = dist::share_of(out.dim(1), rank, group_.size());
    const auto width = static_cast<size_t>(columns.size());
    std::span<const float> from = floats_of(part);
    if (rank > 0) {
      columns_.resize(width * static_cast<size_t>(out.dim(0)));
      group_.receive(rank, std::as_writable_bytes(std::span(columns_)));
      from = columns_;
    }
    for (int64_t row = 0; row < out.dim(0); ++row)
      std::copy_n(from.begin() + row * columns.size(), width, out.at<float>(row, columns.begin));
  }
}

void ModelGroup::receive_stream(TensorView x) {
  world_->receive(world_->rank() - group_.size(), std::as_writable_bytes(floats_of(x)));
}

void ModelGroup::send_stream(TensorView x) {
  world_->send(world_->rank() + group_.size(), std::as_bytes(floats_of(x)));
}

}  // namespace sluice::models

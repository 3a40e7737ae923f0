#include "models/group/shared_sums.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace sluice::models {

namespace {

constexpr int64_t kSmallestSlot = int64_t{1} << 16;  // floats
constexpr int64_t kLargestSlot = int64_t{1} << 24;   // 64 MiB; what is larger is sent
// From as many ranks and bytes on a sum is made in two shots: a rank reads 2 parts instead of one of each rank.
constexpr int kTwoShotRanks = 4;
constexpr int64_t kTwoShotFloats = int64_t{1} << 16;

}  // namespace

bool SharedSums::reserve(int64_t rows, int64_t width) {
  const int64_t wanted = rows * width;
  if (wanted > kLargestSlot || refused_) return false;
  if (memory_ != nullptr && wanted <= floats_) return true;
  floats_ = std::max(kSmallestSlot, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted))));
  turn_ = 0;
  // The old memory stays until all ranks are here: none reads it any more.
  memory_ = dist::SharedParts::make(ranks_, static_cast<size_t>(2 * floats_));
  refused_ = memory_ == nullptr;
  return !refused_;
}

void SharedSums::leave() {
  if (memory_ != nullptr) memory_->leave();
}

TensorView SharedSums::slot(int rank, int64_t rows, int64_t width) const {
  float* first = memory_->of(rank).data() + turn_ * floats_;
  return TensorView::contiguous(first, DType::F32, {rows, width});
}

TensorView SharedSums::part(int64_t rows, int64_t width) {
  return rows > 0 && reserve(rows, width) ? slot(ranks_.rank(), rows, width) : TensorView();
}

void SharedSums::meet(TensorView part) {
  const TensorView own = slot(ranks_.rank(), part.dim(0), part.dim(1));
  if (part.data != own.data) copy(own, part);
  memory_->barrier();
  parts_.clear();
  for (int rank = 0; rank < ranks_.size(); ++rank) parts_.push_back(slot(rank, part.dim(0), part.dim(1)));
}

bool SharedSums::in_two_shots(int64_t rows, int64_t width) const {
  return ranks_.size() >= kTwoShotRanks && rows >= ranks_.size() && rows * width >= kTwoShotFloats;
}

// Nobody else reads the rank's own rows of its part before the second barrier.
void SharedSums::add_up_shares(int64_t rows, int64_t width) {
  const dist::Range own = rows_of(ranks_.rank(), rows);
  for (TensorView& part : parts_) part = part.rows(own.begin, own.end);
  sums_.add_parts(slot(ranks_.rank(), rows, width).rows(own.begin, own.end), parts_);
  memory_->barrier();
}

bool SharedSums::add_up(TensorView x, TensorView part) {
  const int64_t rows = x.dim(0), width = x.dim(1);
  if (!reserve(rows, width)) return false;
  meet(part);
  if (in_two_shots(rows, width)) {
    add_up_shares(rows, width);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const dist::Range share = rows_of(rank, rows);
      copy(x.rows(share.begin, share.end), slot(rank, rows, width).rows(share.begin, share.end));
    }
  } else {
    sums_.add_parts(x, parts_);
  }
  next_slots();
  return true;
}

bool SharedSums::add_up_rms_norm(TensorView out, const kernels::Residual& x, const kernels::RmsGain& gain) {
  const int64_t rows = x.b.dim(0), width = x.b.dim(1);
  if (!reserve(rows, width)) return false;
  meet(x.b);
  if (in_two_shots(rows, width)) {
    add_up_shares(rows, width);
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const dist::Range share = rows_of(rank, rows);
      const TensorView sum = slot(rank, rows, width).rows(share.begin, share.end);
      sums_.add_parts_rms_norm(out.rows(share.begin, share.end),
                               {x.sum.rows(share.begin, share.end), sum, x.b_scale}, {&sum, 1}, gain);
    }
  } else {
    sums_.add_parts_rms_norm(out, x, parts_, gain);
  }
  next_slots();
  return true;
}

bool SharedSums::gather_tokens(TensorView x) {
  const int64_t rows = x.dim(0), width = x.dim(1);
  if (!reserve(rows, width)) return false;
  const dist::Range own = rows_of(ranks_.rank(), rows);
  copy(slot(ranks_.rank(), rows, width).rows(own.begin, own.end), x.rows(own.begin, own.end));
  memory_->barrier();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const dist::Range theirs = rows_of(rank, rows);
    if (rank != ranks_.rank())
      copy(x.rows(theirs.begin, theirs.end), slot(rank, rows, width).rows(theirs.begin, theirs.end));
  }
  next_slots();
  return true;
}

bool SharedSums::add_up_tokens(TensorView x) {
  if (!reserve(x.dim(0), x.dim(1))) return false;
  meet(x);
  const dist::Range own = rows_of(ranks_.rank(), x.dim(0));
  for (TensorView& part : parts_) part = part.rows(own.begin, own.end);
  sums_.add_parts(x.rows(own.begin, own.end), parts_);
  next_slots();
  return true;
}

bool SharedSums::exchange_tokens(TensorView parts, TensorView x) {
  if (!reserve(x.dim(0), x.dim(1))) return false;
  meet(x);
  const dist::Range own = rows_of(ranks_.rank(), x.dim(0));
  for (int rank = 0; rank < ranks_.size(); ++rank)
    copy(parts.rows(rank * own.size(), (rank + 1) * own.size()),
         parts_[static_cast<size_t>(rank)].rows(own.begin, own.end));
  next_slots();
  return true;
}

int64_t SharedSums::widest_share(int64_t columns) const {
  return (columns + ranks_.size() - 1) / ranks_.size();
}

TensorView SharedSums::column_part(int64_t rows, int64_t columns) {
  if (rows == 0 || !reserve(rows, widest_share(columns)) || ranks_.rank() == 0) return {};
  return slot(ranks_.rank(), rows, dist::share_of(columns, ranks_.rank(), ranks_.size()).size());
}

bool SharedSums::gather_columns(TensorView out, TensorView part) {
  const int64_t rows = out.dim(0);
  const auto columns = [&](int rank) { return dist::share_of(out.dim(1), rank, ranks_.size()); };
  if (!reserve(rows, widest_share(out.dim(1)))) return false;
  const TensorView own = slot(ranks_.rank(), rows, part.dim(1));
  if (ranks_.rank() > 0 && part.data != own.data) copy(own, part);
  memory_->barrier();
  for (int rank = 0; rank < ranks_.size() && ranks_.rank() == 0; ++rank) {
    const TensorView to = out.columns(columns(rank).begin, columns(rank).end);
    const TensorView from = rank == 0 ? part : slot(rank, rows, columns(rank).size());
    if (from.data != to.data) copy(to, from);
  }
  next_slots();
  return true;
}

}  // namespace sluice::models

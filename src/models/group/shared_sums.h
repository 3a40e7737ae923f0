// Collectives of ranks on one host whose activations lie in host memory: every rank reads what the others have computed
// where it lies (dist/shared_parts.h), with all of its threads. Sums are made in the order of ranks: they have the bits of
// those that are made of messages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/communicator.h"
#include "dist/shared_parts.h"
#include "kernels/part_sums.h"
#include "tensor/tensor.h"

namespace sluice::models {

// All ranks make the same calls, with views of the same shapes. Calls that return a bool have done nothing where it is
// false: there is no shared memory, or the views are larger than it may become. Each throws dist::GroupFailure.
class SharedSums {
 public:
  // Both outlive it.
  SharedSums(dist::Communicator& ranks, kernels::PartSums& sums) : ranks_(ranks), sums_(sums) {}

  // Memory for this rank's part [n, width] of the next call, which then need not copy it; empty: there is none.
  TensorView part(int64_t rows, int64_t width);

  // x = the sum over ranks of `part`, which is x or what part() gave.
  bool add_up(TensorView x, TensorView part);
  // x.sum += x.b_scale * (the sum of x.b), out = rms_norm(x.sum); x.b is the rank's part.
  bool add_up_rms_norm(TensorView out, const kernels::Residual& x, const kernels::RmsGain& gain);
  // As those of ModelGroup.
  bool gather_tokens(TensorView x);
  bool add_up_tokens(TensorView x);
  bool exchange_tokens(TensorView parts, TensorView x);
  // Memory for this rank's share of `columns` columns, which gather_columns need not copy; empty: there is none, as on the
  // first rank, which has all of them where it likes.
  TensorView column_part(int64_t rows, int64_t columns);
  // `part`: the rank's columns; of the first rank they may be those of out itself.
  bool gather_columns(TensorView out, TensorView part);
  // Ranks that wait for this one fail.
  void leave();

 private:
  // Whether a part of so many numbers has room, on every rank.
  bool reserve(int64_t rows, int64_t width);
  // The part [rows, width] of a rank in the next call, or in the one under way.
  TensorView slot(int rank, int64_t rows, int64_t width) const;
  int64_t widest_share(int64_t columns) const;
  dist::Range rows_of(int rank, int64_t rows) const { return dist::share_of(rows, rank, ranks_.size()); }
  void copy(TensorView out, TensorView x) { sums_.add_parts(out, {&x, 1}); }
  // Brings the part into its slot, unless it lies there, and lists those of all ranks when they have theirs.
  void meet(TensorView part);
  // Where there are many ranks and rows, each makes the sums of its share first, and then reads those of the others.
  bool in_two_shots(int64_t rows, int64_t width) const;
  void add_up_shares(int64_t rows, int64_t width);
  void next_slots() { turn_ ^= 1; }

  dist::Communicator& ranks_;
  kernels::PartSums& sums_;
  std::unique_ptr<dist::SharedParts> memory_;
  int64_t floats_ = 0;    // of a slot
  bool refused_ = false;  // there is no shared memory
  int turn_ =
      0;  // which of a rank's two slots: what was read in one call is not written before the next has met
  std::vector<TensorView> parts_;
};

}  // namespace sluice::models

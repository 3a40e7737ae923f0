// Tokens whose columns are brought into the order of the matrices that they are multiplied with.
#pragma once

#include "kernels/cuda/common/params.h"

namespace sluice::kernels::cuda {

// The entries of a list, each with its columns in the order of its group's matrices: out[e, k] = x[row of e, orders[g][k]].
struct OrderEntriesParams {
  View x, out;                   // out.n: entries
  const int32_t* const* orders;  // [groups] device pointers, or null: columns as x has them
  const int32_t* begin;          // [groups + 1] first entry of each
  const int32_t* gather;         // row of x for each entry, or null: the entry itself
  int64_t groups;
};
void launch_order_entries(const OrderEntriesParams&, Stream);

}  // namespace sluice::kernels::cuda

// Sums of what several ranks have computed, for back-ends that read the parts of all of them in host memory, and norms of
// rows that lie on several ranks.
#pragma once

#include <span>

#include "kernels/backend.h"

namespace sluice::kernels {

class PartSums {
 public:
  virtual ~PartSums() = default;
  // Threads that it computes with.
  virtual int threads() const = 0;
  // out[n, width] = parts[0] + parts[1] + ..., in that order, on all threads. out may be any of the parts. One part: a copy.
  virtual void add_parts(TensorView out, std::span<const TensorView> parts) = 0;
  // x.sum += x.b_scale * (sum of the parts); out = rms_norm(x.sum). x.b is not read. REQUIRES: out is none of the parts.
  virtual void add_parts_rms_norm(TensorView out, const Residual& x, std::span<const TensorView> parts,
                                  const RmsGain& norm) = 0;
  // sums[n, 1] = of each row of x[n, width] the sum of its squares.
  virtual void square_sums(TensorView sums, TensorView x) = 0;
  // x[n, width] = gain * x / sqrt(sums / row_width + eps): the RMSNorm of rows of row_width columns of which these are some,
  // and whose squares sums[n, 1] has.
  virtual void norm_by_sums(TensorView x, TensorView sums, int64_t row_width, const RmsGain& norm) = 0;
};

}  // namespace sluice::kernels

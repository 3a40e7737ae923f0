// Watching what GEMMs read, as calibration does.
#pragma once

#include "kernels/weight.h"

namespace sluice::kernels {

class GemmObserver {
 public:
  virtual ~GemmObserver() = default;
  // Before a GEMM of x [n, cols], f32 on the host, with `weight`.
  virtual void saw(const Weight& weight, TensorView x) = 0;
};

// A back-end whose GEMMs can be watched.
class ObservableGemms {
 public:
  virtual ~ObservableGemms() = default;
  // Not owned; null: nobody watches.
  virtual void set_observer(GemmObserver* observer) = 0;
};

}  // namespace sluice::kernels

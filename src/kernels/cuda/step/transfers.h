// Memory of the device, and what goes to it and comes from it: weights, tensors, rows of f32, pieces beside the steps.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>

#include "kernels/async_device.h"
#include "kernels/backend.h"
#include "kernels/cuda/common/weights.h"
#include "kernels/cuda/step/side_copies.h"
#include "kernels/cuda/step/step_context.h"

namespace sluice::kernels::cuda {

class Transfers {
 public:
  // The context outlives this.
  explicit Transfers(StepContext& step) : step_(step), copies_(step.stream, step.staging) {}

  Memory allocate(DType dtype, std::initializer_list<int64_t> shape);
  // The weight with its matrices on the device, in `packed` as a DeviceWeight.
  Weight prepare(Weight weight, const UploadOptions& options);
  // Gives back what only prepare() needs.
  void end_loading() { uploads_.reset(); }
  Memory upload(TensorView host);
  void download(TensorView out, TensorView x);
  // x as f32, in the order of the stream; `out` may be read once that has come so far.
  void copy_floats(float* out, TensorView x);
  SideCopies& side_copies() { return copies_; }
  const SideCopies& side_copies() const { return copies_; }

 private:
  StepContext& step_;
  SideCopies copies_;
  std::optional<HostUpload> uploads_;  // between the first weight and the first step
  Scratch scratch_;                    // rows as f32
};

}  // namespace sluice::kernels::cuda

// Token-wise operations: norms, element-wise, rows. They need no memory of their own.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/step/step_context.h"
#include "kernels/cuda/step/token_params.h"

namespace sluice::kernels::cuda {

class TokenDispatch {
 public:
  // The context outlives this. `slots`: tokens that embed() takes for ids below zero.
  TokenDispatch(StepContext& step, const int32_t* slots) : step_(step), slots_(slots) {}

  void rms_norm(TensorView out, TensorView x, TensorView gain, float eps);
  void layer_norm(TensorView out, TensorView x, TensorView gain, TensorView bias, float eps);
  void add_rms_norm(TensorView out, const Residual& x, const RmsGain& gain);
  // Backend::add_normed_rms_norm, add_normed where `out` is empty. False where the kernel does not take it: nothing ran.
  bool add_normed(TensorView out, const Residual& x, const RmsGain& branch, const RmsGain& norm);
  void add(TensorView out, TensorView a, TensorView b, float b_scale);
  void gate_rows(TensorView x, TensorView gate, Activation activation);
  // out = operation(x, factor): Copy, Scale, Softcap, Clamp.
  void map(Pointwise operation, TensorView out, TensorView x, float factor);
  void activate(TensorView out, TensorView x, Activation activation);
  // put_off: what reads `out` next may take the gate over, and nothing else reads it.
  void gated(TensorView out, TensorView gate_up, Activation activation, bool put_off = false);
  void gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows);
  void embed(TensorView out, const Weight& table, std::span<const int32_t> ids);
  void embed_device(TensorView out, const Weight& table, TensorView ids);

 private:
  void norm(NormParams params);
  // x.sum += x.b by the mixture that makes x.b, where its second half was put off.
  bool add_down(const Residual& x);
  void pointwise(const PointwiseParams& params) { step_.issue(launch_pointwise, params); }

  StepContext& step_;
  const int32_t* slots_;
};

}  // namespace sluice::kernels::cuda

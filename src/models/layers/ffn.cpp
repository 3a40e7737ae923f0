#include <cmath>

#include "models/layers/layers.h"

namespace sluice::models {

namespace {

float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

}  // namespace

void finish(kernels::Backend& backend, TensorView out, const std::optional<kernels::DeferredMatmul>& last) {
  if (last) backend.matmul(out, last->x, *last->weight);
}

std::optional<kernels::DeferredMatmul> run_ffn(const DenseFfn& f, const DenseWeights& w,
                                               const LayerContext& c, TensorView, TensorView x) {
  const int64_t n = x.dim(0);
  const TensorView wide = c.scratch.get(Buffer::GateUp, n, w.gate_up.rows);
  TensorView inner = wide;
  if (f.gated && f.gate_scale != 1.0f) {
    inner = c.scratch.get(Buffer::Inner, n, f.inner);
    c.backend.matmul(wide, x, w.gate_up);
    c.backend.scale(wide.columns(0, f.inner), f.gate_scale);
    c.backend.gated(inner, wide, f.activation);
  } else if (f.gated) {
    inner = c.scratch.get(Buffer::Inner, n, f.inner);
    c.backend.matmul_gated(inner, wide, x, w.gate_up, f.activation);
  } else {
    c.backend.matmul(wide, x, w.gate_up);
    c.backend.activate(wide, wide, f.activation);
  }
  if (f.norm_inner) run_norm(c.backend, c.spec, inner, inner, w.inner_norm);
  if (f.scale != 1.0f) c.backend.scale(inner, f.scale);
  return kernels::DeferredMatmul{inner, &w.down};
}

// xielu(x) = (beta - n) x + n elu(x) + p relu(x)²
std::optional<kernels::DeferredMatmul> run_ffn(const XieluFfn& f, const XieluWeights& w,
                                               const LayerContext& c, TensorView, TensorView x) {
  const float positive = softplus(w.parameters.alpha_p), beta = w.parameters.beta;
  const float negative = beta + softplus(w.parameters.alpha_n);
  const TensorView wide = c.scratch.get(Buffer::GateUp, x.dim(0), f.inner);
  const TensorView curved = c.scratch.get(Buffer::Activated, x.dim(0), f.inner);
  const TensorView inner = c.scratch.get(Buffer::Inner, x.dim(0), f.inner);
  c.backend.matmul(wide, x, w.up);
  c.backend.activate(curved, wide, Activation::Relu2);
  c.backend.activate(inner, wide, Activation::Elu);
  c.backend.scale(inner, negative);
  c.backend.add(inner, inner, curved, positive);
  c.backend.add(inner, inner, wide, beta - negative);
  return kernels::DeferredMatmul{inner, &w.down};
}

std::optional<kernels::DeferredMatmul> run_ffn(const MoeFfn& f, const MoeWeights& w, const LayerContext& c,
                                               TensorView out, TensorView x) {
  const int64_t n = x.dim(0);
  // Never rounded further: where two experts are almost equally good, that would choose the other one.
  const TensorView logits = c.scratch.get(Buffer::RouterLogits, n, f.routing.experts, DType::F32);
  c.backend.matmul(logits, x, w.router);
  const TensorView ids = c.scratch.get(Buffer::ExpertIds, n, f.routing.used, DType::I32);
  const TensorView weights = c.scratch.get(Buffer::ExpertWeights, n, f.routing.used, DType::F32);
  kernels::Routing routing = f.routing;
  routing.choice_bias = w.choice_bias;
  c.backend.route(ids, weights, logits, routing);
  c.backend.moe_ffn(out, x, ids, weights, w.experts);
  if (f.shared_inner == 0) return std::nullopt;

  const TensorView shared = c.scratch.get(Buffer::Extra, n, c.spec.dim);
  const DenseFfn always{.inner = f.shared_inner, .activation = f.activation, .gated = f.gated};
  finish(c.backend, shared, run_ffn(always, w.shared, c, shared, x));
  if (f.shared_gate) {
    const TensorView gate = c.scratch.get(Buffer::SharedGate, n, 1);
    c.backend.matmul(gate, x, w.shared_gate);
    c.backend.gate_rows(shared, gate);
  }
  c.backend.add(out, out, shared, f.shared_scale);
  return std::nullopt;
}

}  // namespace sluice::models

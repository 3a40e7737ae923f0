#include <cmath>

#include "models/layers/layers.h"
#include "models/layers/split_norm.h"

namespace sluice::models {

namespace {

float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

// gate = relu(gate - mean - q * deviation) = deviation * relu(normed gate - q). With the normed gate g, the deviation is the
// mean of g * gate, since the mean of g is 0.
void cut_off_gates(const DenseWeights& w, const LayerContext& c, TensorView gate) {
  constexpr float kEps = 1e-20f;
  const int64_t n = gate.dim(0), inner = gate.dim(1);
  const TensorView normed = c.scratch.get(Buffer::Activated, n, inner);
  const TensorView deviation = c.scratch.get(Buffer::SharedGate, n, 1);
  c.backend.layer_norm(normed, gate, {}, {}, kEps);
  kernels::recurrent_ops(c.backend)->multiply(normed, normed, gate);
  c.backend.matmul(deviation, normed, w.ones);
  c.backend.scale(deviation, 1.0f / static_cast<float>(inner));
  c.backend.layer_norm(normed, gate, {}, w.cutoff, kEps);
  c.backend.activate(normed, normed, Activation::Relu);
  c.backend.gate_rows(normed, deviation, Activation::Identity);
  c.backend.copy(gate, normed);
}

}  // namespace

void finish(kernels::Backend& backend, TensorView out, const std::optional<kernels::DeferredMatmul>& last) {
  if (last && out.dim(0) > 0) backend.matmul(out, last->x, *last->weight);
}

std::optional<kernels::DeferredMatmul> run_ffn(const DenseFfn& f, const DenseWeights& w,
                                               const LayerContext& c, TensorView, TensorView x) {
  const int64_t n = x.dim(0);
  const TensorView wide = c.scratch.get(Buffer::GateUp, n, w.gate_up.rows);
  TensorView inner = wide;
  if (f.gated && (f.gate_scale != 1.0f || f.limit > 0.0f || f.cuts_off() || f.adapter_rank > 0)) {
    inner = c.scratch.get(Buffer::Inner, n, f.inner);
    c.backend.matmul(wide, x, w.gate_up);
    run_adapter(w.adapter, c, wide, x);
    const TensorView gate = wide.columns(0, f.inner);
    if (f.gate_scale != 1.0f) c.backend.scale(gate, f.gate_scale);
    if (f.cuts_off()) cut_off_gates(w, c, gate);
    if (f.limit > 0.0f) c.backend.activate(gate, gate, f.activation);
    if (f.limit > 0.0f) c.backend.clamp(wide, f.limit);
    c.backend.gated(inner, wide, f.limit > 0.0f ? Activation::Identity : f.activation);
  } else if (f.gated) {
    inner = c.scratch.get(Buffer::Inner, n, f.inner);
    c.backend.matmul_gated(inner, wide, x, w.gate_up, f.activation);
  } else {
    c.backend.matmul(wide, x, w.gate_up);
    run_adapter(w.adapter, c, wide, x);
    c.backend.activate(wide, wide, f.activation);
  }
  if (f.norm_inner) run_norm_of_columns(c, inner, w.inner_norm);
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

namespace {

struct RouterInput {
  TensorView x, judged;  // what experts read, and what the router reads
};

void run_experts(const MoeFfn& f, const MoeWeights& w, const LayerContext& c, TensorView out,
                 const RouterInput& input) {
  const int64_t n = input.x.dim(0);
  // Never rounded further: where two experts are almost equally good, that would choose the other one.
  // Rows of whole 16 bytes: libraries of GEMMs ask for them.
  const int64_t stride = (w.router.rows + 3) / 4 * 4;
  const TensorView logits =
      c.scratch.get(Buffer::RouterLogits, n, stride, DType::F32).columns(0, w.router.rows);
  c.backend.matmul(logits, input.judged, w.router);
  if (f.router_softcap > 0.0f) c.backend.softcap(logits, f.router_softcap);
  kernels::Routing routing = f.routing;
  routing.always = w.joined;
  routing.always_weight = f.shared_scale;
  routing.always_gated = w.joined > 0 && f.shared_gate;
  const TensorView ids = c.scratch.get(Buffer::ExpertIds, n, routing.slots(), DType::I32);
  const TensorView weights = c.scratch.get(Buffer::ExpertWeights, n, routing.slots(), DType::F32);
  routing.choice_bias = w.choice_bias;
  routing.weight_scale = w.weight_scale;
  c.backend.route(ids, weights, logits, routing);
  if (f.latent == 0) {
    c.backend.moe_ffn(out, input.x, ids, weights, w.experts);
    if (c.expert_group != nullptr) c.expert_group->add_up(out);
    return;
  }
  const TensorView latent = c.scratch.get(Buffer::ExpertLatent, n, f.latent);
  const TensorView sum = c.scratch.get(Buffer::ExpertSum, n, f.latent);
  c.backend.matmul(latent, input.x, w.latent_down);
  c.backend.moe_ffn(sum, latent, ids, weights, w.experts);
  if (c.expert_group != nullptr) c.expert_group->add_up(sum);
  c.backend.matmul(out, sum, w.latent_up);
}

}  // namespace

std::optional<kernels::DeferredMatmul> run_ffn(const MoeFfn& f, const MoeWeights& w, const LayerContext& c,
                                               TensorView out, TensorView x) {
  run_experts(f, w, c, out, {x, x});
  if (f.shared_inner == 0 || w.joined > 0) return std::nullopt;

  const int64_t n = x.dim(0);
  const TensorView shared = c.scratch.get(Buffer::Extra, n, c.spec.dim);
  const DenseFfn always{
      .inner = f.shared_inner, .activation = f.activation, .gated = f.gated, .limit = f.shared_limit};
  finish(c.backend, shared, run_ffn(always, w.shared, c, shared, x));
  if (f.shared_gate) {
    const TensorView gate = c.scratch.get(Buffer::SharedGate, n, 1);
    c.backend.matmul(gate, x, w.shared_gate);
    c.backend.gate_rows(shared, gate);
  }
  c.backend.add(out, out, shared, f.shared_scale);
  return std::nullopt;
}

std::optional<kernels::DeferredMatmul> run_ffn(const DenseBesideExperts& f,
                                               const DenseBesideExpertsWeights& w, const LayerContext& c,
                                               TensorView out, TensorView x) {
  const int64_t n = x.dim(0);
  const TensorView dense = c.scratch.get(Buffer::Extra, n, c.spec.dim);
  const TensorView normed = c.scratch.get(Buffer::Normed, n, c.spec.dim);
  run_norm(c.backend, c.spec, normed, x, w.dense_norm);
  finish(c.backend, dense, run_ffn(f.dense, w.dense, c, dense, normed));
  if (c.tensor_group != nullptr) c.tensor_group->add_up(dense);
  run_norm(c.backend, c.spec, dense, dense, w.dense_post_norm);

  const TensorView judged = c.scratch.get(Buffer::ParallelInput, n, c.spec.dim);
  run_norm(c.backend, c.spec, judged, x, w.router_norm);
  run_norm(c.backend, c.spec, normed, x, w.expert_norm);
  run_experts(f.experts, w.experts, c, out, {normed, judged});
  if (c.tensor_group != nullptr) c.tensor_group->add_up(out);
  run_norm(c.backend, c.spec, out, out, w.expert_post_norm);
  c.backend.add(out, out, dense);
  return std::nullopt;
}

}  // namespace sluice::models

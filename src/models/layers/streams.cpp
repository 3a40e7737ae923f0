#include "models/layers/streams.h"

namespace sluice::models {

namespace {

constexpr float kDirectionEps = 1e-20f;  // of norms that only bring rows to length

}  // namespace

TensorView StreamRun::magnitudes(TensorView x) {
  const TensorView part = scratch_.get(Buffer::StreamPart, n_, spec_.dim);
  const TensorView out = scratch_.get(Buffer::StreamFactors, n_, 1);
  backend_.rms_norm(part, x, {}, kDirectionEps);
  kernels::recurrent_ops(backend_)->multiply(part, part, x);
  backend_.matmul(out, part, weights_.ones);
  backend_.scale(out, 1.0f / static_cast<float>(spec_.dim));
  return out;
}

TensorView StreamRun::route(const StreamWeights& w, TensorView x) {
  const TensorView part = scratch_.get(Buffer::StreamPart, n_, spec_.dim);
  const TensorView out = scratch_.get(Buffer::StreamRoute, n_, spec_.streams.count);
  backend_.rms_norm(part, x, w.router_norm.gain, spec_.norm_eps);
  backend_.matmul(out, part, w.router);
  backend_.softcap(out, 1.0f);
  return out;
}

void StreamRun::add_weighed(TensorView to, TensorView x, TensorView factor) {
  const TensorView part = scratch_.get(Buffer::StreamPart, n_, spec_.dim);
  backend_.copy(part, x);
  backend_.gate_rows(part, factor, Activation::Identity);
  backend_.add(to, to, part);
}

void StreamRun::begin(TensorView x) {
  n_ = x.dim(0);
  streams_ = scratch_.get(Buffer::Streams, spec_.streams.count * n_, spec_.dim);
  predicted_ = scratch_.get(Buffer::Predicted, spec_.streams.count * n_, spec_.dim);
  backend_.copy(stream(0), x);
  const TensorView magnitude = magnitudes(x);
  for (int i = 1; i < spec_.streams.count; ++i) {
    backend_.matmul(stream(i), x, weights_.stream_projections[static_cast<size_t>(i) - 1]);
    backend_.rms_norm(stream(i), stream(i), {}, kDirectionEps);
    backend_.gate_rows(stream(i), magnitude, Activation::Identity);
  }
}

void StreamRun::predict(const StreamWeights& w, TensorView x) {
  const int count = spec_.streams.count;
  const TensorView factors = scratch_.get(Buffer::StreamFactors, n_, int64_t{count} * count);
  backend_.matmul(factors, route(w, stream(spec_.streams.active)), w.prediction);
  for (int to = 0; to < count; ++to) {
    backend_.copy(predicted(to), stream(to));
    for (int from = 0; from < count; ++from) {
      const int64_t column = int64_t{to} * count + from;
      add_weighed(predicted(to), stream(from), factors.columns(column, column + 1));
    }
  }
  backend_.copy(x, predicted(spec_.streams.active));
}

void StreamRun::correct(const StreamWeights& w, TensorView x) {
  const int count = spec_.streams.count, active = spec_.streams.active;
  const TensorView factors = scratch_.get(Buffer::StreamFactors, n_, count);
  backend_.matmul(factors, route(w, x), w.correction);
  backend_.add(x, x, predicted(active), -1.0f);
  for (int i = 0; i < count; ++i) {
    backend_.add(stream(i), predicted(i), x);
    add_weighed(stream(i), x, factors.columns(i, i + 1));
  }
  if (spec_.streams.scaled) {
    kernels::recurrent_ops(backend_)->multiply(x, stream(active), w.scale);
  } else {
    backend_.copy(x, stream(active));
  }
}

void StreamRun::add_to_others(TensorView branch) {
  for (int i = 1; i < spec_.streams.count; ++i) backend_.add(stream(i), stream(i), branch);
}

void StreamRun::end(TensorView x) {
  const TensorView magnitude = magnitudes(stream(0));
  backend_.copy(x, stream(0));
  for (int i = 1; i < spec_.streams.count; ++i) {
    const TensorView out = predicted(i);
    backend_.matmul(out, stream(i), weights_.stream_unprojections[static_cast<size_t>(i) - 1]);
    backend_.rms_norm(out, out, {}, kDirectionEps);
    backend_.gate_rows(out, magnitude, Activation::Identity);
    backend_.add(x, x, out);
  }
  backend_.scale(x, 1.0f / static_cast<float>(spec_.streams.count));
}

void run_laurel(const StreamWeights& w, const LayerContext& c, TensorView out, TensorView x) {
  const TensorView latent = c.scratch.get(Buffer::LaurelLatent, x.dim(0), w.laurel_left.rows);
  c.backend.matmul(latent, x, w.laurel_left);
  c.backend.matmul(out, latent, w.laurel_right);
  c.backend.rms_norm(out, out, w.laurel_norm.gain, c.spec.norm_eps);
  c.backend.add(out, out, x);
}

}  // namespace sluice::models

// Several streams of residuals (models::Streams), made of the operations that every back-end has.
#pragma once

#include "models/layers/layers.h"

namespace sluice::models {

// Of one step. Holds references; the buffers are those of the scratch.
class StreamRun {
 public:
  StreamRun(const ModelSpec& spec, const ModelWeights& weights, kernels::Backend& backend, Scratch& scratch)
      : spec_(spec), weights_(weights), backend_(backend), scratch_(scratch) {}

  // Makes the streams from the embeddings x[n, dim].
  void begin(TensorView x);
  // Predicts every stream; x becomes the active one.
  void predict(const StreamWeights& w, TensorView x);
  // Corrects every stream by x, what the layer has made of the active one. x becomes what the layer's input reads.
  void correct(const StreamWeights& w, TensorView x);
  // To all streams but the first.
  void add_to_others(TensorView branch);
  // x = the mean of the streams, the others unprojected first and brought to the first one's magnitude.
  void end(TensorView x);

 private:
  TensorView stream(int index) const { return streams_.rows(index * n_, (index + 1) * n_); }
  TensorView predicted(int index) const { return predicted_.rows(index * n_, (index + 1) * n_); }
  // [n, count]: what the router makes of x.
  TensorView route(const StreamWeights& w, TensorView x);
  // to += factor * x, with one factor [n, 1] for each row
  void add_weighed(TensorView to, TensorView x, TensorView factor);
  // [n, 1]: the root mean squares of x.
  TensorView magnitudes(TensorView x);

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  kernels::Backend& backend_;
  Scratch& scratch_;
  int64_t n_ = 0;
  TensorView streams_, predicted_;  // [count * n, dim]
};

// out = x + norm(right(left x))
void run_laurel(const StreamWeights& w, const LayerContext& c, TensorView out, TensorView x);

}  // namespace sluice::models

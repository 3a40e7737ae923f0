// A block of attention and feed-forward that several layers share, each with adapters of its own.
#include "models/layers/layers.h"

namespace sluice::models {

void run_adapter(const Adapter& adapter, const LayerContext& c, TensorView out, TensorView x) {
  if (adapter.down.empty()) return;
  const TensorView latent = c.scratch.get(Buffer::AdapterLatent, x.dim(0), adapter.down.rows);
  const TensorView added = c.scratch.get(Buffer::Adapted, x.dim(0), out.dim(1));
  c.backend.matmul(latent, x, adapter.down);
  int64_t from = 0, to = 0;
  for (const Weight& up : adapter.ups) {
    c.backend.matmul(added.columns(to, to + up.rows), latent.columns(from, from + up.cols), up);
    from += up.cols;
    to += up.rows;
  }
  c.backend.add(out, out, added);
}

std::optional<kernels::DeferredMatmul> run_mixer(const StateSpaceAfterBlock& m, const AfterBlockWeights& w,
                                                 const LayerContext& c, TensorView out, TensorView x) {
  const int64_t n = x.dim(0), dim = c.spec.dim;
  const TensorView both = c.scratch.get(Buffer::BlockInput, n, 2 * dim);
  const TensorView made = c.scratch.get(Buffer::Extra, n, dim);
  const TensorView normed = c.scratch.get(Buffer::Normed, n, dim);
  const auto make = [&](const std::optional<kernels::DeferredMatmul>& last) {
    finish(c.backend, made, last);
    if (c.tensor_group != nullptr) c.tensor_group->add_up(made);
  };
  run_norm(c.backend, c.spec, both, x, w.input_norm);
  make(run_mixer(m.attention, w.attention, c, made, both));
  run_norm(c.backend, c.spec, normed, made, w.ffn_norm);
  if (n > 0) make(run_ffn(m.ffn, w.ffn, c, made, normed));
  if (n > 0) c.backend.matmul(out, made, w.out);
  c.backend.add(out, x.columns(0, dim), out);
  run_norm(c.backend, c.spec, normed, out, w.scan_norm);
  return run_mixer(m.scan, w.scan, c, out, normed);
}

}  // namespace sluice::models

#include "lab/measure/cut_model.h"

#include "base/check.h"

namespace sluice::lab {

namespace {

bool alike(const models::LayerSpec& layer, const models::LayerSpec& first) {
  const auto *a = std::get_if<models::Attention>(&layer.mixer),
             *b = std::get_if<models::Attention>(&first.mixer);
  if (a == nullptr || b == nullptr || layer.wiring != first.wiring) return false;
  if (a->kv_from >= 0 || a->heads != b->heads || a->kv_heads != b->kv_heads || a->head_dim != b->head_dim ||
      a->window != b->window || a->chunked || a->gated != b->gated || a->indexer.chosen != b->indexer.chosen)
    return false;
  if (const auto* x = std::get_if<models::DenseFfn>(&layer.ffn),
      *y = std::get_if<models::DenseFfn>(&first.ffn);
      x != nullptr && y != nullptr)
    return x->inner == y->inner && x->gated == y->gated;
  const auto *x = std::get_if<models::MoeFfn>(&layer.ffn), *y = std::get_if<models::MoeFfn>(&first.ffn);
  return x != nullptr && y != nullptr && x->inner == y->inner && x->shared_inner == y->shared_inner &&
         x->routing.experts == y->routing.experts && x->routing.used == y->routing.used;
}

}  // namespace

bool can_be_cut(const models::ModelSpec& spec) {
  if (spec.layers.size() < 2 || spec.per_layer_embedding > 0 || spec.streams.count > 0) return false;
  for (const models::LayerSpec& layer : spec.layers)
    if (!alike(layer, spec.layers.front())) return false;
  return true;
}

models::Model cut_model(const models::Model& model, int layers) {
  SLUICE_CHECK(layers >= 1 && static_cast<size_t>(layers) <= model.spec().layers.size());
  models::Model out;
  out.files.path = model.files.path;
  out.files.spec = model.spec();
  out.files.spec.layers.resize(static_cast<size_t>(layers));
  out.weights = model.weights;
  out.weights.layers.resize(static_cast<size_t>(layers));
  out.backend = model.backend;
  return out;
}

}  // namespace sluice::lab

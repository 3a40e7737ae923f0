#include "models/heads/head.h"
#include "models/layers/layers.h"
#include "tensor/half.h"

namespace sluice::models {

TensorView HeadInputs::on_device(TensorView host) {
  kernels::Backend& backend = *head_.model->backend;
  if (backend.async_device() == nullptr) return host;
  if (backend.activation_type() == DType::BF16) {
    const std::span<const float> values(host.at<float>(), static_cast<size_t>(host.elements()));
    narrow_.clear();
    for (const float value : values) narrow_.push_back(f32_to_bf16(value));
    host = TensorView::contiguous(narrow_.data(), DType::BF16, {host.dim(0), host.dim(1)});
  }
  uploaded_ = backend.upload(host);
  return uploaded_.view;
}

TensorView HeadInputs::make(std::span<const Token> tokens, TensorView hidden) {
  const Model& model = *head_.model;
  const ModelSpec& spec = model.spec();
  kernels::Backend& backend = *model.backend;
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t dim = spec.dim;
  const TensorView out = scratch_.get(Buffer::Stream, n, dim);
  hidden = on_device(hidden);
  if (head_.kind == Head::Kind::Eagle3) {
    backend.copy(out, hidden);
    return out;
  }
  const TensorView embedded = scratch_.get(Buffer::Embedded, n, dim);
  backend.embed(embedded, model.weights.embedding, tokens);
  if (spec.embedding_scale != 1.0f) backend.scale(embedded, spec.embedding_scale);
  const TensorView halves = scratch_.get(Buffer::Normed, n, 2 * dim);
  const TensorView first = halves.columns(0, dim), second = halves.columns(dim, 2 * dim);
  run_norm(backend, spec, head_.hidden_first ? second : first, embedded, head_.token_norm);
  run_norm(backend, spec, head_.hidden_first ? first : second, hidden, head_.hidden_norm);
  backend.matmul(out, halves, head_.fusion);
  return out;
}

TensorView HeadInputs::fuse(TensorView tapped) {
  const TensorView out = scratch_.get(Buffer::Branch, tapped.dim(0), head_.model->spec().dim);
  head_.model->backend->matmul(out, on_device(tapped), head_.fusion);
  return out;
}

}  // namespace sluice::models

// What every layer gets of a step's tokens beside the stream (ModelSpec::per_layer_embedding).
#include <cmath>

#include "models/decoder/decoder.h"

namespace sluice::models {

// (norm(projection x / sqrt(dim)) + sqrt(width) table[token]) / sqrt(2)
void Decoder::make_layer_inputs(const StepInput& input, TensorView x) {
  const auto layers = static_cast<int64_t>(spec_.layers.size());
  const auto width = static_cast<float>(spec_.per_layer_embedding);
  layer_inputs_ = scratch_.get(Buffer::LayerInputs, x.dim(0), layers * spec_.per_layer_embedding);
  const TensorView looked_up =
      scratch_.get(Buffer::LayerInputPart, x.dim(0), layers * spec_.per_layer_embedding);
  backend_.matmul(layer_inputs_, x, weights_.layer_input_projection);
  const float factor =
      embedding_scale_ / std::sqrt(static_cast<float>(spec_.dim));  // 1 where x lacks the root
  if (factor != 1.0f) backend_.scale(layer_inputs_, factor);
  const TensorView parts = layer_inputs_.columns_as_heads(0, layers, spec_.per_layer_embedding);
  norm(parts, parts, weights_.layer_input_norm);
  std::vector<Token> known(input.tokens.begin(), input.tokens.end());
  for (Token& token : known)
    if (spec_.per_layer_vocab > 0 && token >= spec_.per_layer_vocab) token = 0;
  look_up(looked_up, weights_.layer_inputs, known);
  backend_.add(layer_inputs_, layer_inputs_, looked_up, std::sqrt(width));
  backend_.scale(layer_inputs_, std::sqrt(0.5f));
}

// out(per_layer_gate(gate x) * input)
TensorView Decoder::layer_input_product(size_t index, TensorView x) {
  const LayerWeights& w = weights_.layers[index];
  const int64_t width = spec_.per_layer_embedding, begin = static_cast<int64_t>(index) * width;
  const TensorView both = scratch_.get(Buffer::LayerInputGate, x.dim(0), 2 * width);
  const TensorView part = scratch_.get(Buffer::LayerInputPart, x.dim(0), width);
  const TensorView branch = scratch_.get(Buffer::Branch, x.dim(0), spec_.dim);
  backend_.matmul(both.columns(0, width), x, w.input_gate);
  backend_.copy(both.columns(width, 2 * width), layer_inputs_.columns(begin, begin + width));
  backend_.gated(part, both, spec_.per_layer_gate);
  backend_.matmul(branch, part, w.input_out);
  return branch;
}

TensorView Decoder::layer_input_branch(size_t index, TensorView x) {
  const TensorView branch = layer_input_product(index, x);
  norm(branch, branch, weights_.layers[index].input_norm);
  return branch;
}

void Decoder::add_layer_input(size_t index, TensorView x, float scale) {
  if (spec_.norm == NormKind::Rms)
    return backend_.add_normed({x, layer_input_product(index, x), 1.0f, scale},
                               {weights_.layers[index].input_norm.gain, spec_.norm_eps});
  backend_.add(x, x, layer_input_branch(index, x));
  if (scale != 1.0f) backend_.scale(x, scale);
}

}  // namespace sluice::models

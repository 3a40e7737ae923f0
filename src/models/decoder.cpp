#include "models/decoder.h"

#include "models/mixers/mixers.h"

namespace sluice::models {

void run_norm(kernels::Backend& backend, const ModelSpec& spec, TensorView out, TensorView x,
              const Norm& norm) {
  if (spec.norm == NormKind::Rms) {
    backend.rms_norm(out, x, norm.gain, spec.norm_eps);
  } else {
    backend.layer_norm(out, x, norm.gain, norm.bias, spec.norm_eps);
  }
}

Decoder::Decoder(const ModelSpec& spec, const ModelWeights& weights, kernels::Backend& backend)
    : spec_(spec), weights_(weights), backend_(backend), scratch_(backend) {}

void Decoder::norm(TensorView out, TensorView x, const Norm& weights) {
  run_norm(backend_, spec_, out, x, weights);
}

void Decoder::add_norm(TensorView out, TensorView x, TensorView branch, const Norm& weights) {
  if (spec_.norm == NormKind::Rms) {
    backend_.add_rms_norm(out, x, branch, weights.gain, spec_.norm_eps, spec_.residual_scale);
  } else {
    backend_.add(x, x, branch, spec_.residual_scale);
    norm(out, x, weights);
  }
}

bool Decoder::starts_with_norm(size_t index) const {
  return index < spec_.layers.size() && spec_.layers[index].wiring != Wiring::PostNorm;
}

void Decoder::embed(const StepInput& input, TensorView x) {
  backend_.embed(x, weights_.embedding, input.tokens);
  if (spec_.embedding_scale != 1.0f) backend_.scale(x, spec_.embedding_scale);
  if (spec_.position_embedding) {
    std::vector<int32_t> rows(input.batch.positions.begin(), input.batch.positions.end());
    for (int32_t& row : rows) row += spec_.position_offset;
    const TensorView positions = scratch_.get(Buffer::Branch, x.dim(0), spec_.dim);
    backend_.embed(positions, weights_.positions, rows);
    backend_.add(x, x, positions);
  }
  if (spec_.embedding_norm) norm(x, x, weights_.embedding_norm);
}

void Decoder::run_layer(size_t index, const StepInput& input, TensorView x) {
  const LayerSpec& layer = spec_.layers[index];
  const LayerWeights& w = weights_.layers[index];
  const LayerContext context{backend_, scratch_, spec_, input.batch, input.kv[index], angles_};
  const TensorView normed = scratch_.get(Buffer::Normed, x.dim(0), spec_.dim);
  const TensorView branch = scratch_.get(Buffer::Branch, x.dim(0), spec_.dim);
  const auto mix = [&](TensorView from) {
    std::visit(
        [&](const auto& mixer) {
          using Weights = std::conditional_t<std::is_same_v<std::decay_t<decltype(mixer)>, Attention>,
                                             AttentionWeights, LatentWeights>;
          run_mixer(mixer, std::get<Weights>(w.mixer), context, branch, from);
        },
        layer.mixer);
  };
  const auto feed = [&](TensorView from) {
    std::visit(
        [&](const auto& ffn) {
          using Weights = std::conditional_t<std::is_same_v<std::decay_t<decltype(ffn)>, DenseFfn>,
                                             DenseWeights, MoeWeights>;
          run_ffn(ffn, std::get<Weights>(w.ffn), context, branch, from);
        },
        layer.ffn);
  };
  const auto add = [&] { backend_.add(x, x, branch, spec_.residual_scale); };
  const auto enter = [&] {
    if (owed_) {
      add_norm(normed, x, branch, w.mixer_norm);
    } else {
      norm(normed, x, w.mixer_norm);
    }
    owed_ = false;
  };
  const auto leave = [&] {
    owed_ = starts_with_norm(index + 1);
    if (!owed_) add();
  };

  switch (layer.wiring) {
    case Wiring::PreNorm:
    case Wiring::Sandwich:
      enter();
      mix(normed);
      if (layer.wiring == Wiring::Sandwich) norm(branch, branch, w.mixer_post_norm);
      add_norm(normed, x, branch, w.ffn_norm);
      feed(normed);
      if (layer.wiring == Wiring::Sandwich) norm(branch, branch, w.ffn_post_norm);
      leave();
      break;
    case Wiring::PostNorm:
      mix(x);
      norm(branch, branch, w.mixer_post_norm);
      add();
      feed(x);
      norm(branch, branch, w.ffn_post_norm);
      leave();
      break;
    case Wiring::Parallel:
    case Wiring::ParallelTwoNorms: {
      enter();
      const TensorView input_of_ffn = scratch_.get(Buffer::ParallelInput, x.dim(0), spec_.dim);
      if (layer.wiring == Wiring::ParallelTwoNorms) norm(input_of_ffn, x, w.ffn_norm);
      mix(normed);
      add();
      feed(layer.wiring == Wiring::ParallelTwoNorms ? input_of_ffn : normed);
      leave();
      break;
    }
  }
}

TensorView Decoder::hidden(std::span<const int32_t> rows) {
  const TensorView chosen = scratch_.get(Buffer::Rows, static_cast<int64_t>(rows.size()), spec_.dim);
  backend_.gather_rows(chosen, stream_, rows);
  const TensorView out = scratch_.get(Buffer::Hidden, chosen.dim(0), spec_.dim);
  norm(out, chosen, weights_.output_norm);
  return out;
}

TensorView Decoder::logits(TensorView hidden) {
  const TensorView out = scratch_.get(Buffer::Logits, hidden.dim(0), spec_.vocab);
  backend_.matmul(out, hidden, weights_.output);
  if (spec_.logit_scale != 1.0f) backend_.scale(out, spec_.logit_scale);
  if (spec_.logit_softcap > 0.0f) backend_.softcap(out, spec_.logit_softcap);
  return out;
}

void Decoder::forward(const StepInput& input) {
  const int64_t n = input.batch.tokens();
  SLUICE_CHECK_EQ(static_cast<int64_t>(input.tokens.size()), n);
  SLUICE_CHECK_EQ(input.kv.size(), spec_.layers.size());
  backend_.begin(input.batch);
  angles_.clear();
  for (size_t i = 0; i < spec_.ropes.size(); ++i) {
    const TensorView frequencies = weights_.rope_frequencies[i];
    const auto buffer = static_cast<Buffer>(static_cast<size_t>(Buffer::Angles0) + i);
    TensorView angles = scratch_.get(buffer, n, frequencies.dim(0) * 2, DType::F32);
    angles = TensorView::contiguous(angles.data, DType::F32, {n, frequencies.dim(0), 2}, angles.device);
    backend_.rope_angles(angles, input.batch, frequencies, spec_.ropes[i].magnitude);
    angles_.push_back(angles);
  }
  stream_ = scratch_.get(Buffer::Stream, n, spec_.dim);
  owed_ = false;
  embed(input, stream_);
  for (size_t i = 0; i < spec_.layers.size(); ++i) run_layer(i, input, stream_);
}

}  // namespace sluice::models

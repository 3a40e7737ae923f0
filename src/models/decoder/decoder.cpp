#include "models/decoder/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/layers/layers.h"

namespace sluice::models {

Decoder::Decoder(const ModelSpec& spec, const ModelWeights& weights, kernels::Backend& backend,
                 ModelGroup* group)
    : spec_(spec),
      weights_(weights),
      backend_(backend),
      group_(group),
      scratch_(backend),
      streams_(spec, weights, backend, scratch_) {
  if (group_ != nullptr && !group_->placement().context.whole())
    context_.emplace(*group_, backend_, scratch_);
  find_stack_device();
}

void Decoder::norm(TensorView out, TensorView x, const Norm& weights) {
  run_norm(backend_, spec_, out, x, weights);
}

void Decoder::enter_layer(TensorView out, TensorView x, TensorView branch, const Norm& weights,
                          bool read_once) {
  if (std::exchange(residual_pending_, false)) {
    add_norm(out, x, branch, weights, read_once);
  } else if (embedding_scale_ != 1.0f) {
    backend_.rms_norm(out, x, weights.gain, spec_.norm_eps / (embedding_scale_ * embedding_scale_));
  } else {
    norm(out, x, weights);
  }
}

bool Decoder::starts_with_norm(size_t index) const {
  if (index >= spec_.layers.size()) return false;
  const Wiring wiring = spec_.layers[index].wiring;
  return wiring != Wiring::PostNorm && wiring != Wiring::SumNorm && wiring != Wiring::NormedStream &&
         !reads_tokens(spec_.layers[index]);
}

bool Decoder::is_last(size_t index) const {
  return index + 1 == spec_.layers.size() && (group_ == nullptr || group_->placement().last_stage());
}

namespace {

using LastProduct = std::optional<kernels::DeferredMatmul>;

LastProduct mix_layer(const LayerSpec& layer, const LayerWeights& w, const LayerContext& context,
                      TensorView out, TensorView x) {
  return std::visit(
      [&](const auto& mixer, const auto& weights) -> LastProduct {
        if constexpr (requires { run_mixer(mixer, weights, context, out, x); }) {
          return run_mixer(mixer, weights, context, out, x);
        } else {
          SLUICE_CHECK(!"the weights are of another mixer");
          return std::nullopt;
        }
      },
      layer.mixer, w.mixer);
}

LastProduct feed_layer(const LayerSpec& layer, const LayerWeights& w, const LayerContext& context,
                       TensorView out, TensorView x) {
  return std::visit(
      [&](const auto& ffn, const auto& weights) -> LastProduct {
        if constexpr (requires { run_ffn(ffn, weights, context, out, x); }) {
          return run_ffn(ffn, weights, context, out, x);
        } else {
          SLUICE_CHECK(!"the weights are of another feed-forward");
          return std::nullopt;
        }
      },
      layer.ffn, w.ffn);
}

// Whether one product alone reads what the part gets.
template <class Part>
bool reads_once(const Part& part) {
  return std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.reads_once(); }) return kind.reads_once();
        return false;
      },
      part);
}

}  // namespace

// A layer on its way through a step: x is the stream, branch what a part of the layer makes.
struct Decoder::LayerRun {
  Decoder& decoder;
  size_t index;
  const LayerSpec& layer;
  const LayerWeights& w;
  const LayerContext context;
  TensorView x, normed, branch;
  float scale;  // factor on what the layer leaves, that is still to be applied

  LayerRun(Decoder& owner, size_t number, const StepInput& input, TensorView stream)
      : decoder(owner),
        index(number),
        layer(owner.spec_.layers[number]),
        w(owner.weights_.layers[number]),
        context{owner.backend_,
                owner.scratch_,
                owner.spec_,
                owner.context_ ? owner.context_->own_batch() : input.batch,
                input.kv[number],
                owner.angles_,
                input.state_batch,
                number < input.states.size() ? input.states[number] : TensorView(),
                owner.expert_group(),
                owner.tensor_group(),
                owner.context_ && owner.split_ ? &*owner.context_ : nullptr},
        x(stream),
        normed(owner.scratch_.get(Buffer::Normed, stream.dim(0), owner.spec_.dim)),
        branch(owner.gathers() ? owner.own_branch_
                               : owner.scratch_.get(Buffer::Branch, stream.dim(0), owner.spec_.dim)),
        scale(w.scale) {}

  void mix(TensorView from) {
    const bool product = !std::holds_alternative<AttentionBesideStateSpace>(layer.mixer) &&
                         !std::holds_alternative<StateSpaceAfterBlock>(layer.mixer);
    run_part(from, product ? Output::Product : Output::Summed, [&](TensorView out, TensorView in) {
      auto last = mix_layer(layer, w, context, out, in);
      if (!decoder.query_rows_.empty()) decoder.copy_queries(index, in.dim(0));
      return last;
    });
  }
  void feed(TensorView from) {
    if (decoder.context_ && from.dim(0) == 0) return;
    const Output output = std::holds_alternative<DenseBesideExperts>(layer.ffn) ? Output::Whole
                          : std::holds_alternative<MoeFfn>(layer.ffn)           ? Output::Summed
                                                                                : Output::Product;
    run_part(from, output,
             [&](TensorView out, TensorView in) { return feed_layer(layer, w, context, out, in); });
  }
  // What a part makes where ranks share its heads or widths.
  enum class Output : uint8_t {
    Product,  // to be summed: a product that is left to the caller, so that the output is not touched before the input is read
    Summed,   // to be summed, and written on the way
    Whole     // whole on every rank, and written on the way
  };
  // branch = part(from). Where ranks share the tokens, the part reads those of all of them and its sums go to the rank that
  // has the token.
  template <class Part>
  void run_part(TensorView from, Output output, const Part& part) {
    if (!decoder.gathers()) {
      decoder.pending_output_proj_ = part(branch, from);
      if (output != Output::Whole) decoder.add_up_branch(branch);
      return;
    }
    const TensorView all = decoder.gathered(from);
    const TensorView sums =
        output == Output::Product ? all : decoder.scratch_.get(Buffer::Branch, all.dim(0), decoder.spec_.dim);
    decoder.pending_output_proj_ = part(sums, all);
    SLUICE_CHECK(decoder.pending_output_proj_.has_value() || output != Output::Product);
    decoder.finish_branch(sums);
    if (output != Output::Whole) decoder.group_->add_up_tokens(sums);
    branch = decoder.own_branch_ = decoder.own_rows_of(sums);
  }
  void norm_branch(const Norm& weights) { decoder.norm_branch(branch, weights); }
  void add_to(TensorView from) { decoder.add_branch(x, from, branch); }
  void enter(const StepInput& input) {
    const bool alone = layer.wiring == Wiring::PreNorm || layer.wiring == Wiring::Sandwich;
    decoder.enter_layer(normed, x, branch, w.mixer_norm, alone && reads_once(layer.mixer));
    decoder.scale_embeddings(input, x);
    decoder.tap(index, x);
  }
  void leave() {
    const bool ends_with_sum = decoder.spec_.per_layer_embedding == 0;
    // A branch that is normed while it is added takes the factor along.
    if (ends_with_sum && decoder.branch_norm_) decoder.sum_scale_ = std::exchange(scale, 1.0f);
    decoder.residual_pending_ = ends_with_sum && scale == 1.0f && decoder.starts_with_norm(index + 1);
    if (!decoder.residual_pending_) add_to(x);
  }

  void run(const StepInput& input) {
    switch (layer.wiring) {
      case Wiring::PreNorm:
      case Wiring::Sandwich:
        return run_pre_norm(input);
      case Wiring::PostNorm:
        return run_post_norm();
      case Wiring::SumNorm:
        return run_sum_norm();
      case Wiring::NormedStream:
        return run_normed_stream();
      case Wiring::Parallel:
      case Wiring::ParallelTwoNorms:
        return run_parallel(input);
      case Wiring::BesideTokens:
        return run_beside_tokens();
      case Wiring::TokensBeside:
        return run_tokens_beside();
      case Wiring::Laurel:
        return run_laurel_norm();
    }
  }
  void run_pre_norm(const StepInput& input) {
    const bool sandwich = layer.wiring == Wiring::Sandwich;
    enter(input);
    if (std::holds_alternative<NoMixer>(layer.mixer)) {
      feed(normed);
      return leave();
    }
    mix(normed);
    if (decoder.is_last(index) && input.rows) decoder.drop_rows(*input.rows, x, branch);
    if (decoder.kept_ && decoder.kept_->empty()) return;
    if (std::holds_alternative<NoFfn>(layer.ffn)) return leave();
    normed = decoder.scratch_.get(Buffer::Normed, x.dim(0), decoder.spec_.dim);
    if (sandwich) norm_branch(w.mixer_post_norm);
    if (std::holds_alternative<DenseBesideExperts>(layer.ffn)) {
      add_to(x);
      feed(x);
    } else {
      decoder.add_norm(normed, x, branch, w.ffn_norm, reads_once(layer.ffn));
      feed(normed);
    }
    if (sandwich) norm_branch(w.ffn_post_norm);
    leave();
  }
  void run_post_norm() {
    mix(x);
    norm_branch(w.mixer_post_norm);
    add_to(x);
    feed(x);
    norm_branch(w.ffn_post_norm);
    leave();
  }
  void run_sum_norm() {
    mix(x);
    add_to(x);
    decoder.norm(x, x, w.mixer_post_norm);
    feed(x);
    add_to(x);
    decoder.norm(x, x, w.ffn_post_norm);
  }
  void run_normed_stream() {
    decoder.norm(normed, x, w.mixer_norm);
    mix(normed);
    add_to(normed);
    decoder.norm(normed, x, w.ffn_norm);
    feed(normed);
    add_to(normed);
  }
  void run_beside_tokens() {
    const int64_t n = x.dim(0), dim = decoder.spec_.dim;
    const TensorView both = decoder.scratch_.get(Buffer::ParallelInput, n, 2 * dim);
    decoder.norm(both.columns(0, dim), decoder.scratch_.get(Buffer::Embedded, n, dim), w.mixer_norm);
    decoder.norm(both.columns(dim, 2 * dim), x, w.mixer_post_norm);
    mix(both);
    decoder.add_norm(normed, x, branch, w.ffn_norm);
    feed(normed);
    leave();
  }
  void run_tokens_beside() {
    const int64_t n = x.dim(0), dim = decoder.spec_.dim;
    const TensorView both = decoder.scratch_.get(Buffer::ParallelInput, n, 2 * dim);
    decoder.backend_.copy(both.columns(0, dim), x);
    decoder.backend_.copy(both.columns(dim, 2 * dim), decoder.scratch_.get(Buffer::Embedded, n, dim));
    mix(both);
    leave();
  }
  void run_laurel_norm() {
    const TensorView laurel = decoder.scratch_.get(Buffer::Laurel, x.dim(0), decoder.spec_.dim);
    decoder.norm(normed, x, w.mixer_norm);
    run_laurel(w.streams, context, laurel, normed);
    mix(normed);
    norm_branch(w.mixer_post_norm);
    add_to(x);
    decoder.backend_.add(x, x, laurel);
    decoder.backend_.scale(x, std::sqrt(0.5f));
    decoder.norm(normed, x, w.ffn_norm);
    feed(normed);
    norm_branch(w.ffn_post_norm);
    add_to(x);
  }
  void run_parallel(const StepInput& input) {
    enter(input);
    const bool two_norms = layer.wiring == Wiring::ParallelTwoNorms;
    const TensorView input_of_ffn = decoder.scratch_.get(Buffer::ParallelInput, x.dim(0), decoder.spec_.dim);
    if (two_norms) decoder.norm(input_of_ffn, x, w.ffn_norm);
    mix(normed);
    add_to(x);
    feed(two_norms ? input_of_ffn : normed);
    leave();
  }
};

void Decoder::run_layer(size_t index, const StepInput& input, TensorView x) {
  LayerRun layer(*this, index, input, x);
  const bool streams = spec_.streams.count > 0;
  if (streams) streams_.predict(layer.w.streams, x);
  layer.run(input);
  if (layer.x.dim(0) == 0) return;
  if (streams) {
    streams_.correct(layer.w.streams, x);
    return streams_.add_to_others(layer_input_branch(index, x));
  }
  if (spec_.per_layer_embedding > 0) add_layer_input(index, layer.x, std::exchange(layer.scale, 1.0f));
  if (layer.scale != 1.0f) backend_.scale(layer.x, layer.scale);
  // Sums commute: what the layer still owes the stream is added later.
  const int64_t begin = static_cast<int64_t>(index + 1) * spec_.dim;
  for (const EmbeddedRows& rows : input.embedded)
    if (rows.values.dim(1) > begin) {
      SLUICE_CHECK_EQ(sum_scale_, 1.0f);
      backend_.add(x.rows(rows.row, rows.row + rows.values.dim(0)),
                   x.rows(rows.row, rows.row + rows.values.dim(0)),
                   rows.values.columns(begin, begin + spec_.dim));
    }
}

void Decoder::forward(const StepInput& input) {
  const int64_t n = input.batch.tokens();
  SLUICE_CHECK_EQ(static_cast<int64_t>(input.tokens.size()), n);
  SLUICE_CHECK_EQ(input.kv.size(), spec_.layers.size());
  const Placement placement = group_ != nullptr ? group_->placement() : Placement();
  step_rows_ = n;
  own_rows_ = placement.tokens.of(n);
  split_ = !placement.tokens.whole();
  backend_.begin(input.batch);
  if (context_) context_->begin(input.batch, own_rows_);
  angles_.clear();
  for (size_t i = 0; i < spec_.ropes.size(); ++i) {
    const kernels::RopeTable& table = weights_.ropes[i];
    const auto buffer = static_cast<Buffer>(static_cast<size_t>(Buffer::Angles0) + i);
    TensorView angles = scratch_.get(buffer, n, table.pairs() * 2, DType::F32);
    angles = TensorView::contiguous(angles.data, DType::F32, {n, table.pairs(), 2}, angles.device);
    backend_.rope_angles(angles, input.batch, table);
    angles_.push_back(context_ ? angles.rows(own_rows_.begin, own_rows_.end) : angles);
  }
  stream_ = scratch_.get(Buffer::Stream, own_rows_.size(), spec_.dim);
  kept_.reset();
  residual_pending_ = false;
  branch_norm_.reset();
  sum_scale_ = embedding_scale_ = 1.0f;
  pending_output_proj_.reset();
  sum_pending_ = false;
  part_ = {};
  if (placement.first_stage()) {
    embed(input, stream_);
  } else {
    group_->receive_stream(stream_);
  }
  if (spec_.per_layer_embedding > 0) make_layer_inputs(input, stream_);
  if (spec_.streams.count > 0) streams_.begin(stream_);
  if (clock_ != nullptr) clock_->start();
  for (size_t i = run_stack(input) ? spec_.layers.size() : 0; i < spec_.layers.size(); ++i) {
    run_layer(i, input, stream_);
    if (clock_ != nullptr) clock_->end_layer(i);
    if (group_ != nullptr) group_->progress();
  }
  if (spec_.streams.count > 0) streams_.end(stream_);
  if (!placement.last_stage()) group_->send_stream(stream_);
  kept_queries_ = query_rows_.size();
  query_rows_.clear();
}

}  // namespace sluice::models

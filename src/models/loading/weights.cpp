#include "models/loading/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/loading/bind_recurrent.h"
#include "models/loading/binder.h"

namespace sluice::models {

namespace {

Norm bind_norm(Binder& binder, const ModelSpec& spec, WeightSlot slot, int64_t width) {
  if (!spec.norm_gain) return {};
  Norm norm{binder.vector(slot, width), {}};
  if (spec.norm == NormKind::Layer) norm.bias = binder.optional_vector(slot, width, ".bias");
  return norm;
}

// Slopes of linear position biases: a geometric row for the largest power of two of heads, the rest between.
std::vector<float> alibi_slopes(int heads, float largest, float scale) {
  const int power = 1 << static_cast<int>(std::floor(std::log2(heads)));
  const double first = std::pow(2.0, -largest / power), second = std::pow(2.0, -largest / (2.0 * power));
  std::vector<float> slopes;
  slopes.reserve(static_cast<size_t>(heads));
  for (int i = 0; i < heads; ++i)
    slopes.push_back(scale * static_cast<float>(i < power ? std::pow(first, i + 1)
                                                          : std::pow(second, 2 * (i - power) + 1)));
  return slopes;
}

struct BindMixer {
  Binder& binder;
  const ModelSpec& spec;

  MixerWeights operator()(const NoMixer&) const { return NoWeights{}; }
  MixerWeights operator()(const ShortConv& m) const { return bind_recurrent(binder, spec, m); }
  MixerWeights operator()(const GatedDelta& m) const { return bind_recurrent(binder, spec, m); }
  MixerWeights operator()(const StateSpace& m) const { return bind_recurrent(binder, spec, m); }
  MixerWeights operator()(const ChannelScan& m) const { return bind_recurrent(binder, spec, m); }
  MixerWeights operator()(const AttentionBesideStateSpace& m) const {
    return BesideWeights{std::get<AttentionWeights>((*this)(m.attention)),
                         bind_recurrent(binder, spec, m.scan)};
  }

  MixerWeights operator()(const Attention& m) const {
    const int64_t q = int64_t{m.heads} * m.head_dim, kv = int64_t{m.kv_heads} * m.head_dim;
    AttentionWeights w;
    binder.set_qkv_shape({m.heads, m.kv_heads, m.head_dim});
    const WeightSlot slot = m.kv_from >= 0      ? WeightSlot::QueryUp
                            : m.values_are_keys ? WeightSlot::Qkk
                                                : WeightSlot::Qkv;
    w.qkv = binder.matrix(slot, {m.kv_from >= 0 ? q : q + 2 * kv, spec.dim});
    w.out = binder.matrix(WeightSlot::AttentionOut, {spec.dim, q});
    if (m.qk_norm != QkNorm::None && m.qk_norm != QkNorm::Scaleless) {
      const bool whole = m.qk_norm != QkNorm::PerHead;
      w.q_norm = bind_norm(binder, spec, WeightSlot::QNorm, whole ? q : m.head_dim);
      if (m.kv_from < 0) w.k_norm = bind_norm(binder, spec, WeightSlot::KNorm, whole ? kv : m.head_dim);
    }
    if (m.sinks) w.sinks = binder.vector(WeightSlot::Sinks, m.heads);
    if (m.norm_output) w.out_norm = bind_norm(binder, spec, WeightSlot::AttentionOutNorm, q);
    if (m.gated) w.gate = binder.matrix(WeightSlot::AttentionGate, {q, spec.dim});
    if (m.alibi > 0.0f) w.alibi = binder.upload(alibi_slopes(m.heads, m.alibi, m.alibi_scale));
    return w;
  }

  MixerWeights operator()(const LatentAttention& m) const {
    LatentWeights w;
    const int64_t q_rows = int64_t{m.heads} * (m.nope_dim + m.rope_dim);
    if (m.q_latent > 0) {
      w.query_down = binder.matrix(WeightSlot::QueryDown, {m.q_latent, spec.dim});
      w.query_norm = bind_norm(binder, spec, WeightSlot::QueryDownNorm, m.q_latent);
    }
    w.query_up = binder.matrix(WeightSlot::QueryUp, {q_rows, m.q_latent > 0 ? m.q_latent : spec.dim});
    w.latent_down = binder.matrix(WeightSlot::LatentDown, {m.latent + m.rope_dim, spec.dim});
    w.latent_norm = bind_norm(binder, spec, WeightSlot::LatentNorm, m.latent);
    if (binder.has(WeightSlot::LatentKeyUp)) {
      w.key_up = binder.bank(WeightSlot::LatentKeyUp, m.heads, {m.latent, m.nope_dim});
      w.value_up = binder.bank(WeightSlot::LatentValueUp, m.heads, {m.value_dim, m.latent});
    } else {
      split_latent_up(m, w);
    }
    w.out = binder.matrix(WeightSlot::AttentionOut, {spec.dim, int64_t{m.heads} * m.value_dim});
    return w;
  }

  // One stored matrix holds, per head, nope_dim rows that make keys and value_dim rows that make values from
  // the latent.
  void split_latent_up(const LatentAttention& m, LatentWeights& w) const {
    const int64_t step = m.nope_dim + m.value_dim;
    const std::optional<TensorView> up = binder.stored(WeightSlot::LatentUp);
    if (!up || up->rank != 2 || up->dim(0) != m.heads * step || up->dim(1) != m.latent) {
      binder.fail(fmt::format("latent up: the file has {}, the architecture needs [{}, {}]",
                              up ? up->describe() : "nothing", m.heads * step, m.latent));
      return;
    }
    for (int64_t head = 0; head < m.heads; ++head) {
      const TensorView keys = up->rows(head * step, head * step + m.nope_dim);
      const TensorView values = up->rows(head * step + m.nope_dim, (head + 1) * step);
      w.key_up.push_back(binder.prepared_of_list(
          {{binder.keep(dequantize_transposed(keys))}, m.latent, m.nope_dim, {}, {}}));
      w.value_up.push_back(binder.prepared_of_list({{values}, m.value_dim, m.latent, {}, {}}));
    }
  }
};

struct BindFfn {
  Binder& binder;
  const ModelSpec& spec;

  FfnWeights operator()(const NoFfn&) const { return NoWeights{}; }

  FfnWeights operator()(const DenseFfn& f) const {
    return DenseWeights{binder.matrix(WeightSlot::GateUp, {int64_t{f.inner} * (f.gated ? 2 : 1), spec.dim}),
                        binder.matrix(WeightSlot::Down, {spec.dim, f.inner}),
                        f.norm_inner ? bind_norm(binder, spec, WeightSlot::DownNorm, f.inner) : Norm()};
  }

  FfnWeights operator()(const MoeFfn& f) const {
    MoeWeights w;
    const int64_t up = f.gated ? 2 : 1;
    w.router = binder.matrix(WeightSlot::Router, {f.routing.experts, spec.dim});
    if (f.router_choice_bias) w.choice_bias = binder.vector(WeightSlot::RouterChoiceBias, f.routing.experts);
    w.experts.activation = f.activation;
    w.experts.gated = f.gated;
    w.experts.weigh_inputs = f.weigh_inputs;
    w.experts.gate_up = binder.bank(WeightSlot::ExpertGateUp, f.routing.experts, {up * f.inner, spec.dim});
    w.experts.down = binder.bank(WeightSlot::ExpertDown, f.routing.experts, {spec.dim, f.inner});
    if (f.shared_inner > 0) {
      w.shared.gate_up = binder.matrix(WeightSlot::SharedGateUp, {up * f.shared_inner, spec.dim});
      w.shared.down = binder.matrix(WeightSlot::SharedDown, {spec.dim, f.shared_inner});
    }
    if (f.shared_gate) w.shared_gate = binder.matrix(WeightSlot::SharedGate, {1, spec.dim});
    return w;
  }

  FfnWeights operator()(const XieluFfn& f) const {
    const auto value = [&](WeightSlot slot, float otherwise) {
      const std::vector<float> stored = binder.host_vector(slot, 1);
      return stored.empty() ? otherwise : stored.front();
    };
    return XieluWeights{binder.matrix(WeightSlot::GateUp, {f.inner, spec.dim}),
                        binder.matrix(WeightSlot::Down, {spec.dim, f.inner}),
                        {value(WeightSlot::XieluAlphaP, f.parameters.alpha_p),
                         value(WeightSlot::XieluAlphaN, f.parameters.alpha_n),
                         value(WeightSlot::XieluBeta, f.parameters.beta)}};
  }
};

LayerWeights bind_layer(Binder& binder, const ModelSpec& spec, const LayerSpec& layer) {
  LayerWeights w;
  const Wiring wiring = layer.wiring;
  const bool pre = wiring != Wiring::PostNorm && wiring != Wiring::SumNorm;
  const bool post = !pre || wiring == Wiring::Sandwich;
  const auto norm = [&](WeightSlot slot) { return bind_norm(binder, spec, slot, spec.dim); };
  const bool both =
      !std::holds_alternative<NoMixer>(layer.mixer) && !std::holds_alternative<NoFfn>(layer.ffn);
  if (pre) w.mixer_norm = norm(WeightSlot::MixerNorm);
  if (pre && both && wiring != Wiring::Parallel) w.ffn_norm = norm(WeightSlot::FfnNorm);
  if (post) w.mixer_post_norm = norm(WeightSlot::MixerPostNorm);
  if (post) w.ffn_post_norm = norm(WeightSlot::FfnPostNorm);
  w.mixer = std::visit(BindMixer{binder, spec}, layer.mixer);
  w.ffn = std::visit(BindFfn{binder, spec}, layer.ffn);
  if (spec.per_layer_embedding > 0) {
    w.input_gate = binder.matrix(WeightSlot::LayerInputGate, {spec.per_layer_embedding, spec.dim});
    w.input_out = binder.matrix(WeightSlot::LayerInputOut, {spec.dim, spec.per_layer_embedding});
    w.input_norm = norm(WeightSlot::LayerInputNorm);
  }
  if (layer.scaled)
    if (const std::vector<float> factor = binder.host_vector(WeightSlot::LayerScale, 1); !factor.empty())
      w.scale = factor[0];
  return w;
}

HostTensor sinusoids(int64_t positions, int64_t dim) {
  HostTensor table = HostTensor::make(DType::F32, {positions, dim});
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < positions * half; ++i) {
    const int64_t position = i / half, pair = i % half;
    const double step = std::log(10000.0) / static_cast<double>(std::max<int64_t>(half - 1, 1));
    const double angle = static_cast<double>(position) * std::exp(-step * static_cast<double>(pair));
    table.view.at<float>(position)[pair] = static_cast<float>(std::sin(angle));
    table.view.at<float>(position)[half + pair] = static_cast<float>(std::cos(angle));
  }
  return table;
}

Weight bind_positions(Binder& binder, const ModelSpec& spec) {
  const int64_t rows = int64_t{spec.context} + spec.position_offset;
  if (spec.positions == Positions::Learned)
    return binder.matrix(WeightSlot::PositionEmbedding, {rows, spec.dim});
  return binder.prepared({{binder.keep(sinusoids(rows, spec.dim))}, rows, spec.dim, {}, {}});
}

// GGUF files carry the divisors of stretched frequencies as tensors.
bool divide_by_factors(Binder& binder, WeightSlot slot, std::vector<float>& frequencies) {
  if (frequencies.empty() || !binder.has(slot)) return false;
  const std::vector<float> factors = binder.host_vector(slot, static_cast<int64_t>(frequencies.size()));
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0.0f)) {
      binder.fail(fmt::format("rope factor {} is {}, must be positive", i, factors[i]));
      return false;
    }
    frequencies[i] /= factors[i];
  }
  return !factors.empty();
}

void apply_rope_factors(Binder& binder, ModelSpec& spec) {
  if (spec.ropes.empty()) return;
  Rope& rope = spec.ropes[0];
  if (divide_by_factors(binder, WeightSlot::RopeFactors, rope.inverse_frequency))
    rope.note += ", divided by the file's factors";
  divide_by_factors(binder, WeightSlot::RopeFactorsBeyond, rope.beyond);
}

kernels::RopeTable bind_rope(Binder& binder, const Rope& rope) {
  std::vector<float> rows = rope.inverse_frequency;
  rows.insert(rows.end(), rope.beyond.begin(), rope.beyond.end());
  const auto pairs = static_cast<int64_t>(rope.inverse_frequency.size());
  const TensorView flat = binder.upload(rows);
  return {TensorView::contiguous(flat.data, flat.dtype, {flat.elements() / pairs, pairs}, flat.device),
          rope.limit, rope.magnitude, rope.magnitude_beyond};
}

// The embedding, prepared once more where the logits have a bias.
Weight bind_tied_output(Binder& binder, const ModelSpec& spec, const Weight& embedding) {
  const TensorView bias = binder.optional_vector(WeightSlot::Output, spec.vocab, ".bias");
  if (!binder.status()) return embedding;
  if (bias.empty()) return binder.prepared_tied(embedding);
  const std::optional<TensorView> table = binder.stored(WeightSlot::TokenEmbedding);
  return table ? binder.prepared({{*table}, spec.vocab, embedding_width(spec), false, bias, {}}) : embedding;
}

bool routes(const LayerSpec& layer) {
  return std::holds_alternative<MoeFfn>(layer.ffn);
}

Status check_layers(const ModelSpec& spec, kernels::Backend& backend) {
  for (size_t i = 0; i < spec.layers.size(); ++i)
    if (const std::string_view kind = recurrent_kind(spec.layers[i]);
        !kind.empty() && kernels::recurrent_ops(backend) == nullptr)
      return Error{ErrorCode::Unsupported,
                   fmt::format("layer {} is {}, which '{}' does not compute; --device cpu does", i, kind,
                               backend.name())};
  return {};
}

}  // namespace

Result<ModelWeights> bind_weights(ModelSpec& spec, const formats::TensorStore& store,
                                  kernels::Backend& backend, Progress progress) {
  if (Status status = check_layers(spec, backend); !status) return status.error();
  if (std::any_of(spec.layers.begin(), spec.layers.end(), routes)) backend.expect_routing();
  ModelWeights w;
  Binder binder(spec, store, backend, w);
  const Extent table{spec.vocab, embedding_width(spec)};
  w.embedding = binder.matrix(WeightSlot::TokenEmbedding, table);
  if (spec.embedding_dim > 0) {
    w.embedding_in = binder.matrix(WeightSlot::EmbeddingIn, {spec.dim, spec.embedding_dim});
    w.embedding_out = binder.matrix(WeightSlot::EmbeddingOut, {spec.embedding_dim, spec.dim});
  }
  if (spec.positions != Positions::None) w.positions = bind_positions(binder, spec);
  if (spec.embedding_norm) w.embedding_norm = bind_norm(binder, spec, WeightSlot::EmbeddingNorm, spec.dim);
  if (const int64_t inputs = int64_t{spec.per_layer_embedding} * static_cast<int64_t>(spec.layers.size());
      inputs > 0) {
    w.layer_inputs = binder.matrix(WeightSlot::LayerInputTable, {spec.vocab, inputs});
    w.layer_input_projection = binder.matrix(WeightSlot::LayerInputProjection, {inputs, spec.dim});
    w.layer_input_norm =
        bind_norm(binder, spec, WeightSlot::LayerInputProjectionNorm, spec.per_layer_embedding);
  }
  apply_rope_factors(binder, spec);
  for (const Rope& rope : spec.ropes) w.ropes.push_back(bind_rope(binder, rope));

  for (size_t i = 0; i < spec.layers.size() && binder.status().ok(); ++i) {
    binder.set_layer(static_cast<int>(i));
    w.layers.push_back(bind_layer(binder, spec, spec.layers[i]));
    progress(static_cast<float>(i + 1) / static_cast<float>(spec.layers.size()));
  }
  binder.set_layer(-1);
  if (spec.output_norm) w.output_norm = bind_norm(binder, spec, WeightSlot::OutputNorm, spec.dim);
  w.output = spec.tied_output ? bind_tied_output(binder, spec, w.embedding)
                              : binder.matrix(WeightSlot::Output, table);
  if (!binder.status()) return binder.status().error();
  return w;
}

}  // namespace sluice::models

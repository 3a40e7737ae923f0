#include "models/loading/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/loading/bind_parts.h"
#include "models/loading/binder.h"
#include "models/loading/cutter.h"

namespace sluice::models {

Norm bind_norm(Binder& binder, const ModelSpec& spec, WeightSlot slot, int64_t width) {
  if (!spec.norm_gain) return {};
  Norm norm{binder.vector(slot, width), {}};
  if (spec.norm == NormKind::Layer) norm.bias = binder.optional_vector(slot, width, ".bias");
  return norm;
}

namespace {

Norm part_of(const Norm& norm, Range range) {
  const auto part = [&](TensorView view) { return view.empty() ? view : view.rows(range.begin, range.end); };
  return {part(norm.gain), part(norm.bias)};
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
  Cutter cutter{};

  MixerWeights operator()(const NoMixer&) const { return NoWeights{}; }
  MixerWeights operator()(const ShortConv& m) const { return bind_recurrent(binder, spec, m, cutter); }
  MixerWeights operator()(const GatedDelta& m) const { return bind_recurrent(binder, spec, m, cutter); }
  MixerWeights operator()(const StateSpace& m) const { return bind_recurrent(binder, spec, m, cutter); }
  MixerWeights operator()(const ChannelScan& m) const { return bind_recurrent(binder, spec, m, cutter); }
  MixerWeights operator()(const AttentionBesideStateSpace& m) const {
    return BesideWeights{std::get<AttentionWeights>((*this)(m.attention)),
                         bind_recurrent(binder, spec, m.scan, cutter)};
  }

  MixerWeights operator()(const StateSpaceAfterBlock& m) const;

  MixerWeights operator()(const Attention& m) const {
    const int64_t q = int64_t{m.heads} * m.head_dim, kv = int64_t{m.kv_heads} * m.head_dim,
                  values = int64_t{m.kv_heads} * m.values(), width = int64_t{m.heads} * m.values();
    AttentionWeights w;
    binder.set_qkv_shape({m.heads, m.kv_heads, m.head_dim});
    const WeightSlot slot = m.kv_from >= 0      ? WeightSlot::QueryUp
                            : m.values_are_keys ? WeightSlot::Qkk
                                                : WeightSlot::Qkv;
    const Range heads = cutter.share.of(m.heads), kv_heads = shared_of(m.kv_heads, cutter.share);
    const Range queries = scaled(heads, m.head_dim), keys = scaled(kv_heads, m.head_dim);
    const Cut cut =
        m.kv_from >= 0
            ? cutter.rows({queries})
            : cutter.rows({queries, scaled(kv_heads, m.head_dim, q), scaled(kv_heads, m.values(), q + kv)});
    const Range attended = scaled(heads, m.values());
    const Range gates = m.gate_per_head ? heads : attended;
    if (m.gate_beside_qkv())
      w.qkv = binder.joined(
          {{slot, q + kv + values, cut.rows}, {WeightSlot::AttentionGate, width, cutter.rows({gates}).rows}},
          spec.dim);
    else
      w.qkv = binder.matrix(
          slot, {m.kv_from >= 0 ? q : q + kv + values, m.input_dim > 0 ? m.input_dim : spec.dim}, cut);
    w.out = binder.matrix(WeightSlot::AttentionOut, {spec.dim, width}, cutter.cols({attended}));
    if (m.qk_norm != QkNorm::None && m.qk_norm != QkNorm::Scaleless) {
      const bool whole = m.qk_norm != QkNorm::PerHead;
      w.q_norm = bind_norm(binder, spec, WeightSlot::QNorm, whole ? q : m.head_dim);
      if (m.kv_from < 0) w.k_norm = bind_norm(binder, spec, WeightSlot::KNorm, whole ? kv : m.head_dim);
      if (whole) {
        w.q_norm = part_of(w.q_norm, queries);
        w.k_norm = part_of(w.k_norm, keys);
      }
    }
    if (m.sinks) w.sinks = part_of({binder.vector(WeightSlot::Sinks, m.heads), {}}, heads).gain;
    if (m.norm_output)
      w.out_norm = part_of(bind_norm(binder, spec, WeightSlot::AttentionOutNorm, width), attended);
    if (m.gated && !m.gate_beside_qkv())
      w.gate = binder.matrix(WeightSlot::AttentionGate, {m.gate_per_head ? m.heads : width, spec.dim},
                             cutter.rows({gates}));
    if (m.indexer.chosen > 0)
      w.indexer = bind_indexer(binder, spec, m,
                               cutter.rows({scaled(index_heads_of(m, cutter.share), m.indexer.dim)}));
    if (m.alibi > 0.0f)
      w.alibi = binder.upload(kept_rows(alibi_slopes(m.heads, m.alibi, m.alibi_scale), cutter.rows({heads})));
    return w;
  }

  MixerWeights operator()(const LatentAttention& m) const {
    LatentWeights w;
    const int64_t q_rows = int64_t{m.heads} * (m.nope_dim + m.rope_dim);
    const Range heads = cutter.share.of(m.heads), queries = scaled(heads, m.nope_dim + m.rope_dim);
    const SlotRows latent{WeightSlot::LatentDown, m.latent + m.rope_dim, {}};
    if (m.q_latent > 0) {
      w.in = binder.joined({{WeightSlot::QueryDown, m.q_latent, {}}, latent}, spec.dim);
      w.query_norm = bind_norm(binder, spec, WeightSlot::QueryDownNorm, m.q_latent);
      w.query_up = binder.matrix(WeightSlot::QueryUp, {q_rows, m.q_latent}, cutter.rows({queries}));
    } else {
      w.in = binder.joined({{WeightSlot::QueryUp, q_rows, cutter.rows({queries}).rows}, latent}, spec.dim);
    }
    w.latent_norm = bind_norm(binder, spec, WeightSlot::LatentNorm, m.latent);
    if (binder.has(WeightSlot::LatentKeyUp)) {
      w.key_up = binder.bank(WeightSlot::LatentKeyUp, m.heads, {m.latent, m.nope_dim}, {}, heads);
      w.value_up = binder.bank(WeightSlot::LatentValueUp, m.heads, {m.value_dim, m.latent}, {}, heads);
    } else {
      split_latent_up(m, w);
    }
    w.out = binder.matrix(WeightSlot::AttentionOut, {spec.dim, int64_t{m.heads} * m.value_dim},
                          cutter.cols({scaled(heads, m.value_dim)}));
    if (m.indexer.heads > 0) w.indexer = bind_indexer(binder, spec, m);
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
    const Range heads = cutter.share.of(m.heads);
    for (int64_t head = heads.begin; head < heads.end; ++head) {
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
  Cutter cutter{};
  Cutter expert_cutter{};  // of each expert
  Share experts{};

  FfnWeights operator()(const NoFfn&) const { return NoWeights{}; }

  DenseWeights dense(const DenseFfn& f) const {
    const int up = f.gated ? 2 : 1;
    DenseWeights w{
        binder.matrix(WeightSlot::GateUp, {int64_t{f.inner} * up, spec.dim},
                      cutter.stacked_rows(f.inner, up)),
        binder.matrix(WeightSlot::Down, {spec.dim, f.inner}, cutter.cols({cutter.share.of(f.inner)})),
        f.norm_inner
            ? part_of(bind_norm(binder, spec, WeightSlot::DownNorm, f.inner), cutter.share.of(f.inner))
            : Norm()};
    if (f.cuts_off()) bind_cutoff(binder, f, w);
    return w;
  }

  MoeWeights mixture(const MoeFfn& f) const {
    MoeWeights w;
    const int up = f.gated ? 2 : 1;
    if (!f.shared_gate) w.router = binder.matrix(WeightSlot::Router, {f.routing.experts, spec.dim});
    if (f.router_choice_bias) w.choice_bias = binder.vector(WeightSlot::RouterChoiceBias, f.routing.experts);
    if (f.router_weight_scale)
      w.weight_scale = binder.vector(WeightSlot::RouterWeightScale, f.routing.experts);
    w.experts.activation = f.activation;
    w.experts.gated = f.gated;
    w.experts.weigh_inputs = f.weigh_inputs;
    w.experts.limit = f.limit;
    const int64_t width = f.latent > 0 ? f.latent : spec.dim;
    if (f.latent > 0) {
      w.latent_down = binder.matrix(WeightSlot::ExpertLatentDown, {width, spec.dim});
      w.latent_up = binder.matrix(WeightSlot::ExpertLatentUp, {spec.dim, width},
                                  {.rows = {}, .cols = {}, .bias = cutter.share.index == 0});
    }
    const Range own = experts.of(f.routing.experts);
    w.experts.first = static_cast<int>(own.begin);
    w.experts.gate_up =
        binder.bank(WeightSlot::ExpertGateUp, f.routing.experts, {int64_t{f.inner} * up, width},
                    expert_cutter.stacked_rows(f.inner, up), own);
    w.experts.down = binder.bank(WeightSlot::ExpertDown, f.routing.experts, {width, f.inner},
                                 expert_cutter.cols({expert_cutter.share.of(f.inner)}), own);
    if (cutter.share.whole() && expert_cutter.share.whole() && experts.whole())
      w.joined = join_shared_experts(binder, spec, f, w.experts);
    const bool gate_joined = w.joined > 0 && f.shared_gate;
    if (gate_joined)
      w.router = binder.joined({{WeightSlot::Router, f.routing.experts, {}}, {WeightSlot::SharedGate, 1, {}}},
                               spec.dim);
    else if (f.shared_gate)
      w.router = binder.matrix(WeightSlot::Router, {f.routing.experts, spec.dim});
    if (f.shared_inner > 0 && w.joined == 0) {
      w.shared.gate_up = binder.matrix(WeightSlot::SharedGateUp, {int64_t{f.shared_inner} * up, spec.dim},
                                       cutter.stacked_rows(f.shared_inner, up));
      w.shared.down = binder.matrix(WeightSlot::SharedDown, {spec.dim, f.shared_inner},
                                    cutter.cols({cutter.share.of(f.shared_inner)}));
    }
    if (f.shared_gate && !gate_joined) w.shared_gate = binder.matrix(WeightSlot::SharedGate, {1, spec.dim});
    return w;
  }

  FfnWeights operator()(const DenseFfn& f) const { return dense(f); }
  FfnWeights operator()(const MoeFfn& f) const { return mixture(f); }
  FfnWeights operator()(const DenseBesideExperts& f) const {
    const auto norm = [&](WeightSlot slot) { return bind_norm(binder, spec, slot, spec.dim); };
    DenseBesideExpertsWeights w{dense(f.dense),
                                mixture(f.experts),
                                norm(WeightSlot::FfnNorm),
                                {},
                                norm(WeightSlot::ExpertNorm),
                                norm(WeightSlot::DensePostNorm),
                                norm(WeightSlot::ExpertPostNorm)};
    std::vector<float> gain = binder.host_vector(WeightSlot::RouterInputScale, spec.dim);
    if (gain.empty()) binder.fail("router input scale: the file has nothing");
    for (float& value : gain) value /= std::sqrt(static_cast<float>(spec.dim));
    w.router_norm.gain = binder.upload(gain);
    return w;
  }

  FfnWeights operator()(const XieluFfn& f) const {
    const auto value = [&](WeightSlot slot, float otherwise) {
      const std::vector<float> stored = binder.host_vector(slot, 1);
      return stored.empty() ? otherwise : stored.front();
    };
    const Range inner = cutter.share.of(f.inner);
    return XieluWeights{binder.matrix(WeightSlot::GateUp, {f.inner, spec.dim}, cutter.rows({inner})),
                        binder.matrix(WeightSlot::Down, {spec.dim, f.inner}, cutter.cols({inner})),
                        {value(WeightSlot::XieluAlphaP, f.parameters.alpha_p),
                         value(WeightSlot::XieluAlphaN, f.parameters.alpha_n),
                         value(WeightSlot::XieluBeta, f.parameters.beta)}};
  }
};

MixerWeights BindMixer::operator()(const StateSpaceAfterBlock& m) const {
  const int layer = binder.layer();
  AfterBlockWeights w;
  binder.set_layer(layer, m.block_names);
  if (m.block_from >= 0) {
    w = std::get<AfterBlockWeights>(binder.bound().layers[static_cast<size_t>(m.block_from)].mixer);
  } else {
    w.input_norm = bind_norm(binder, spec, WeightSlot::MixerNorm, int64_t{2} * spec.dim);
    w.attention = std::get<AttentionWeights>((*this)(m.attention));
    w.ffn_norm = bind_norm(binder, spec, WeightSlot::FfnNorm, spec.dim);
    w.ffn = BindFfn{binder, spec, cutter}.dense(m.ffn);
  }
  w.attention.qkv_adapter = bind_adapter(binder, spec, m.attention, m.use, cutter);
  w.ffn.adapter = bind_adapter(binder, spec, m.ffn, m.use, cutter);
  binder.set_layer(layer);
  w.out = binder.matrix(WeightSlot::BlockOut, {spec.dim, spec.dim});
  binder.set_layer(layer, m.scan_names);
  w.scan_norm = bind_norm(binder, spec, WeightSlot::MixerNorm, spec.dim);
  w.scan = bind_recurrent(binder, spec, m.scan, cutter);
  binder.set_layer(layer);
  return w;
}

}  // namespace

LayerWeights bind_layer(Binder& binder, const ModelSpec& spec, const LayerSpec& layer,
                        const Placement& placement) {
  LayerWeights w;
  const Wiring wiring = layer.wiring;
  const bool pre = wiring != Wiring::PostNorm && wiring != Wiring::SumNorm;
  const bool post = !pre || wiring == Wiring::Sandwich || wiring == Wiring::Laurel;
  const auto norm = [&](WeightSlot slot) { return bind_norm(binder, spec, slot, spec.dim); };
  const bool both =
      !std::holds_alternative<NoMixer>(layer.mixer) && !std::holds_alternative<NoFfn>(layer.ffn);
  if (pre && wiring != Wiring::TokensBeside) w.mixer_norm = norm(WeightSlot::MixerNorm);
  const bool normed = !std::holds_alternative<DenseBesideExperts>(layer.ffn);
  if (pre && both && normed && wiring != Wiring::Parallel) w.ffn_norm = norm(WeightSlot::FfnNorm);
  if (post || wiring == Wiring::BesideTokens) w.mixer_post_norm = norm(WeightSlot::MixerPostNorm);
  if (post) w.ffn_post_norm = norm(WeightSlot::FfnPostNorm);
  w.mixer = std::visit(BindMixer{binder, spec, {placement.tensor}}, layer.mixer);
  w.ffn = std::visit(BindFfn{binder, spec, {placement.tensor}, {placement.expert_inner}, placement.experts},
                     layer.ffn);
  if (spec.per_layer_embedding > 0) {
    w.input_gate = binder.matrix(WeightSlot::LayerInputGate, {spec.per_layer_embedding, spec.dim});
    w.input_out = binder.matrix(WeightSlot::LayerInputOut, {spec.dim, spec.per_layer_embedding});
    w.input_norm = norm(WeightSlot::LayerInputNorm);
  }
  if (spec.streams.count > 0) w.streams = bind_streams(binder, spec);
  if (layer.scaled)
    if (const std::vector<float> factor = binder.host_vector(WeightSlot::LayerScale, 1); !factor.empty())
      w.scale = factor[0];
  return w;
}

namespace {

// The embedding, prepared once more where the logits have a bias.
Weight bind_tied_output(Binder& binder, const ModelSpec& spec, const Weight& embedding, const Cut& cut) {
  const std::vector<float> bias = binder.host_vector(WeightSlot::Output, spec.vocab, ".bias");
  if (!binder.status()) return embedding;
  if (bias.empty()) return binder.prepared_tied(embedding);
  const std::optional<TensorView> table = binder.stored(WeightSlot::TokenEmbedding);
  if (!table) return embedding;
  const Weight whole{{*table}, spec.vocab, embedding_width(spec), false, binder.upload(kept_rows(bias, cut)),
                     {}};
  return binder.prepared(binder.kept(WeightSlot::TokenEmbedding, whole, cut));
}

// What lies before the first layer.
void bind_entry(Binder& binder, const ModelSpec& spec, const Cut& vocabulary, ModelWeights& w) {
  w.embedding = binder.matrix(WeightSlot::TokenEmbedding, {spec.vocab, embedding_width(spec)}, vocabulary);
  if (spec.embedding_dim > 0)
    w.embedding_in = binder.matrix(WeightSlot::EmbeddingIn, {spec.dim, spec.embedding_dim});
  if (spec.positions != Positions::None) w.positions = bind_positions(binder, spec);
  if (spec.embedding_norm && spec.embedding_norm_gain)
    w.embedding_norm = bind_norm(binder, spec, WeightSlot::EmbeddingNorm, spec.dim);
  const int64_t inputs = int64_t{spec.per_layer_embedding} * static_cast<int64_t>(spec.layers.size());
  if (inputs == 0) return;
  const int words = spec.per_layer_vocab > 0 ? spec.per_layer_vocab : spec.vocab;
  w.layer_inputs = binder.matrix(WeightSlot::LayerInputTable, {words, inputs}, vocabulary);
  w.layer_input_projection = binder.matrix(WeightSlot::LayerInputProjection, {inputs, spec.dim});
  w.layer_input_norm =
      bind_norm(binder, spec, WeightSlot::LayerInputProjectionNorm, spec.per_layer_embedding);
}

// What lies behind the last.
void bind_exit(Binder& binder, const ModelSpec& spec, Range logits, ModelWeights& w) {
  const Cut cut = logits.size() == spec.vocab ? Cut() : Cut{.rows = {logits}, .cols = {}};
  if (spec.embedding_dim > 0)
    w.embedding_out = binder.matrix(WeightSlot::EmbeddingOut, {spec.embedding_dim, spec.dim});
  if (spec.output_norm) w.output_norm = bind_norm(binder, spec, WeightSlot::OutputNorm, spec.dim);
  const WeightSlot slot = spec.tied_output ? WeightSlot::TokenEmbedding : WeightSlot::Output;
  const bool is_bound = spec.tied_output && w.embedding.rows == logits.size();
  w.output = is_bound ? w.embedding : binder.matrix(slot, {spec.vocab, embedding_width(spec)}, cut);
  if (spec.tied_output) w.output = bind_tied_output(binder, spec, w.output, cut);
}

Status check_layers(const ModelSpec& spec, kernels::Backend& backend) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    std::string_view kind;
    if (kernels::recurrent_ops(backend) == nullptr)
      kind = spec.streams.count > 1 ? "one of several residual streams" : recurrent_kind(spec.layers[i]);
    if (!kind.empty())
      return Error{ErrorCode::Unsupported,
                   fmt::format("layer {} is {}, which '{}' does not compute; --device cpu does", i, kind,
                               backend.name())};
  }
  return {};
}

}  // namespace

Result<ModelWeights> bind_weights(ModelSpec& spec, const Placement& placement,
                                  const formats::TensorStore& store, kernels::Backend& backend,
                                  Progress progress) {
  if (Status status = check_layers(spec, backend); !status) return status.error();
  if (magnifies_errors(spec)) backend.expect_magnified_errors();
  ModelWeights w;
  Binder binder(spec, store, backend, w);
  const Cut vocabulary = Cutter{placement.tensor}.rows({placement.tensor.of(spec.vocab)});
  if (placement.first_stage()) bind_entry(binder, spec, vocabulary, w);
  apply_rope_factors(binder, spec);
  for (const Rope& rope : spec.ropes) w.ropes.push_back(bind_rope(binder, rope));
  if (spec.streams.count > 0) bind_stream_ends(binder, spec, w);
  const Range layers = placement.layers(spec);
  for (int64_t i = layers.begin; i < layers.end && binder.status().ok(); ++i) {
    binder.set_layer(static_cast<int>(i));
    w.layers.push_back(bind_layer(binder, spec, spec.layers[static_cast<size_t>(i)], placement));
    binder.drop_unread();
    progress(static_cast<float>(i + 1 - layers.begin) / static_cast<float>(layers.size()));
  }
  binder.set_layer(-1);
  const Range logits = placement.logits(spec.vocab);
  if (logits.size() > 0) bind_exit(binder, spec, logits, w);
  binder.drop_unread();
  if (!binder.status()) return binder.status().error();
  return w;
}

}  // namespace sluice::models

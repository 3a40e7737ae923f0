#include "models/spec.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace sluice::models {

namespace {

struct FfnSize {
  int64_t dim;
  bool active;  // only what one token uses
  int64_t operator()(const DenseFfn& f) const {
    return dim * f.inner * (f.gated ? 3 : 2) + f.adapter_rank * (dim + int64_t{f.inner} * (f.gated ? 2 : 1));
  }
  int64_t operator()(const MoeFfn& f) const {
    const int64_t expert = (f.latent > 0 ? f.latent : dim) * f.inner * (f.gated ? 3 : 2);
    const int64_t shared = dim * f.shared_inner * (f.gated ? 3 : 2);
    return expert * (active ? f.routing.used : f.routing.experts) + shared +
           dim * (f.routing.experts + 2 * f.latent);
  }
  int64_t operator()(const DenseBesideExperts& f) const { return (*this)(f.dense) + (*this)(f.experts); }
  int64_t operator()(const XieluFfn& f) const { return dim * f.inner * 2; }
  int64_t operator()(const NoFfn&) const { return 0; }
};

struct MixerSize {
  int64_t dim;
  bool active;  // all that one token uses, what layers share once for each
  int64_t operator()(const Attention& m) const {
    const int64_t q = int64_t{m.heads} * m.head_dim, out = int64_t{m.heads} * m.values();
    const int64_t kv = m.kv_from >= 0 ? 0 : int64_t{m.kv_heads} * (m.head_dim + m.values());
    const int64_t gate = !m.gated ? 0 : m.gate_per_head ? m.heads : out;
    const int64_t read = m.input_dim > 0 ? m.input_dim : dim;
    const int64_t indexer = m.indexer.chosen > 0 ? dim * (m.indexer.heads + 1) * m.indexer.dim : 0;
    return read * (q + kv) + dim * (out + gate) + m.adapter_rank * (3 * read + q + kv) + indexer;
  }
  int64_t operator()(const LatentAttention& m) const {
    const int64_t q = int64_t{m.heads} * (m.nope_dim + m.rope_dim);
    const int64_t query = m.q_latent > 0 ? dim * m.q_latent + m.q_latent * q : dim * q;
    const int64_t up = int64_t{m.latent} * m.heads * (m.nope_dim + m.value_dim);
    const int64_t indexer =
        m.indexer.heads * (int64_t{m.q_latent} * m.indexer.dim + dim) + dim * m.indexer.dim;
    return query + dim * (m.latent + m.rope_dim) + up + int64_t{m.heads} * m.value_dim * dim + indexer;
  }
  int64_t operator()(const ShortConv& m) const { return m.width(dim) * (4 * dim + m.taps); }
  int64_t operator()(const GatedDelta& m) const {
    const int64_t decays = m.channel_decay ? m.value_heads * m.key_dim : m.value_heads;
    const int64_t gates =
        m.gate_latent > 0 ? m.gate_latent * (2 * dim + m.values() + decays) : dim * (m.values() + decays);
    return m.channels() * (dim + m.taps) + gates + dim * m.value_heads + m.values() * dim;
  }
  int64_t operator()(const StateSpace& m) const {
    return dim * (m.inner() + m.channels() + m.heads) + m.channels() * m.taps + m.inner() * dim;
  }
  int64_t operator()(const ChannelScan& m) const {
    const int64_t made = m.step_rank + 2 * m.state_dim;
    return int64_t{m.inner} * (3 * dim + m.taps + made + m.step_rank + m.state_dim);
  }
  int64_t operator()(const AttentionBesideStateSpace& m) const {
    return (*this)(m.attention) + (*this)(m.scan);
  }
  int64_t operator()(const StateSpaceAfterBlock& m) const {
    int64_t shared = 0;
    if (m.block_from >= 0 && !active) {
      Attention attention = m.attention;
      DenseFfn ffn = m.ffn;
      attention.adapter_rank = ffn.adapter_rank = 0;
      shared = (*this)(attention) + FfnSize{dim, active}(ffn);
    }
    return (*this)(m.attention) + FfnSize{dim, active}(m.ffn) - shared + dim * dim + (*this)(m.scan);
  }
  int64_t operator()(const NoMixer&) const { return 0; }
};

int64_t layer_parameters(const ModelSpec& spec, bool active) {
  int64_t count = 0;
  for (const LayerSpec& layer : spec.layers)
    count += std::visit(MixerSize{spec.dim, active}, layer.mixer) +
             std::visit(FfnSize{spec.dim, active}, layer.ffn);
  return count;
}

}  // namespace

bool takes_positions(const ModelSpec& spec) {
  if (spec.positions != Positions::None || changing_rope(spec) != nullptr) return false;
  return std::all_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    if (const auto* latent = std::get_if<LatentAttention>(&layer.mixer))
      return latent->temperature.slope <= 0;
    const auto* mixer = std::get_if<Attention>(&layer.mixer);
    return mixer != nullptr && mixer->window == 0 && mixer->alibi <= 0 && mixer->temperature.slope <= 0 &&
           mixer->indexer.chosen == 0;
  });
}

const Rope* changing_rope(const ModelSpec& spec) {
  const auto found = std::find_if(spec.ropes.begin(), spec.ropes.end(),
                                  [](const Rope& rope) { return !rope.beyond.empty(); });
  return found == spec.ropes.end() ? nullptr : &*found;
}

PositionChoice choice_of(const LayerSpec& layer) {
  if (const auto* latent = std::get_if<LatentAttention>(&layer.mixer))
    return {latent->indexer.chosen, latent->indexer.heads};
  if (const auto* mixer = std::get_if<Attention>(&layer.mixer))
    return {mixer->indexer.positions(), mixer->indexer.heads};
  return {};
}

int positions_before_choice(const ModelSpec& spec) {
  int64_t least = 0;
  for (const LayerSpec& layer : spec.layers) {
    const int64_t positions = choice_of(layer).most;
    if (positions > 0) least = least == 0 ? positions : std::min(least, positions);
  }
  return static_cast<int>(std::min<int64_t>(least, 1 << 30));
}

void drop_indexers(ModelSpec& spec) {
  const int positions = positions_before_choice(spec);
  if (positions == 0) return;
  for (LayerSpec& layer : spec.layers) {
    if (auto* latent = std::get_if<LatentAttention>(&layer.mixer)) latent->indexer = {};
    if (auto* mixer = std::get_if<Attention>(&layer.mixer)) mixer->indexer = {};
  }
  spec.context = std::min(spec.context, positions);
  spec.context_limit = positions;
}

namespace {

struct StateOf {
  int64_t dim;
  LayerState operator()(const Attention& mixer) const {
    if (mixer.kv_from >= 0) return KvOf{mixer.kv_from};
    return PagedKv{.kv_heads = mixer.kv_heads,
                   .key_dim = mixer.head_dim,
                   .value_dim = mixer.values(),
                   .window = mixer.window,
                   .index_dim = mixer.indexer.dim};
  }
  LayerState operator()(const LatentAttention& latent) const {
    return PagedKv{.kv_heads = 1,
                   .key_dim = latent.latent + latent.rope_dim,
                   .value_dim = latent.latent,
                   .value_in_key = true,
                   .index_dim = latent.indexer.dim};
  }
  // The convolution's last inputs, then what the scan keeps.
  LayerState operator()(const ShortConv& m) const { return Recurrent{{(m.taps - 1) * m.width(dim)}}; }
  LayerState operator()(const GatedDelta& m) const {
    return Recurrent{{(m.taps - 1) * m.channels() + m.values() * m.key_dim}};
  }
  LayerState operator()(const StateSpace& m) const {
    return Recurrent{{(m.taps - 1) * m.channels() + m.inner() * m.state_dim}};
  }
  LayerState operator()(const ChannelScan& m) const {
    return Recurrent{{int64_t{m.inner} * (m.taps - 1 + m.state_dim)}};
  }
  LayerState operator()(const AttentionBesideStateSpace& m) const {
    return KvAndState{std::get<PagedKv>((*this)(m.attention)), std::get<Recurrent>((*this)(m.scan))};
  }
  LayerState operator()(const StateSpaceAfterBlock& m) const {
    return KvAndState{std::get<PagedKv>((*this)(m.attention)), std::get<Recurrent>((*this)(m.scan))};
  }
  LayerState operator()(const NoMixer&) const { return NoState{}; }
};

struct KindOf {
  std::string_view operator()(const ShortConv&) const { return "a short convolution"; }
  std::string_view operator()(const GatedDelta&) const { return "gated delta-rule attention"; }
  std::string_view operator()(const StateSpace&) const { return "a state space (Mamba 2)"; }
  std::string_view operator()(const ChannelScan&) const { return "a state space (Mamba 1)"; }
  std::string_view operator()(const AttentionBesideStateSpace&) const {
    return "attention beside a state space (Mamba 2)";
  }
  std::string_view operator()(const StateSpaceAfterBlock&) const {
    return "a state space (Mamba 2) after a shared block";
  }
  std::string_view operator()(const auto&) const { return ""; }
};

}  // namespace

int64_t Recurrent::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<LayerState> layer_states(const ModelSpec& spec) {
  std::vector<LayerState> states;
  states.reserve(spec.layers.size());
  for (const LayerSpec& layer : spec.layers) states.push_back(std::visit(StateOf{spec.dim}, layer.mixer));
  return states;
}

const PagedKv* kv_of(std::span<const LayerState> states, size_t layer) {
  if (const auto* other = std::get_if<KvOf>(&states[layer])) layer = static_cast<size_t>(other->layer);
  if (const auto* both = std::get_if<KvAndState>(&states[layer])) return &both->kv;
  return std::get_if<PagedKv>(&states[layer]);
}

const Recurrent* recurrent_of(const LayerState& state) {
  if (const auto* both = std::get_if<KvAndState>(&state)) return &both->state;
  return std::get_if<Recurrent>(&state);
}

std::string_view recurrent_kind(const LayerSpec& layer) {
  return std::visit(KindOf{}, layer.mixer);
}

bool routes(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return std::holds_alternative<MoeFfn>(layer.ffn) || std::holds_alternative<DenseBesideExperts>(layer.ffn);
  });
}

bool magnifies_errors(const ModelSpec& spec) {
  const auto decays = [](const LayerSpec& layer) {
    return !recurrent_kind(layer).empty() && !std::holds_alternative<ShortConv>(layer.mixer);
  };
  return spec.streams.count > 1 || routes(spec) ||
         std::any_of(spec.layers.begin(), spec.layers.end(), decays);
}

int64_t kv_bytes_per_token(std::span<const LayerState> states, DType kv_type) {
  int64_t elements = 0;
  for (size_t i = 0; i < states.size(); ++i)
    if (!std::holds_alternative<KvOf>(states[i]))
      if (const PagedKv* kv = kv_of(states, i)) elements += kv->width();
  return row_bytes(kv_type, elements);
}

int64_t kv_bytes_per_token(const ModelSpec& spec, DType kv_type) {
  return kv_bytes_per_token(layer_states(spec), kv_type);
}

int64_t state_bytes(std::span<const LayerState> states) {
  int64_t elements = 0;
  for (const LayerState& state : states)
    if (const Recurrent* recurrent = recurrent_of(state)) elements += recurrent->elements();
  return elements * static_cast<int64_t>(sizeof(float));
}

int64_t parameter_count(const ModelSpec& spec) {
  const int64_t embedding = int64_t{spec.vocab} * embedding_width(spec);
  const int64_t projections = int64_t{2} * spec.embedding_dim * spec.dim;
  const int64_t positions = spec.positions == Positions::Learned ? int64_t{spec.context} * spec.dim : 0;
  const int64_t inputs = int64_t{spec.per_layer_embedding} * static_cast<int64_t>(spec.layers.size());
  const int64_t input_parameters = inputs * (spec.vocab + int64_t{3} * spec.dim);
  return layer_parameters(spec, false) + embedding * (spec.tied_output ? 1 : 2) + projections + positions +
         input_parameters;
}

int64_t active_parameter_count(const ModelSpec& spec) {
  return layer_parameters(spec, true) + int64_t{spec.vocab} * embedding_width(spec) +
         int64_t{2} * spec.embedding_dim * spec.dim;
}

}  // namespace sluice::models

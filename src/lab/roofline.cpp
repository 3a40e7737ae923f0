#include "lab/roofline.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/peak.h"

namespace sluice::lab {

Arithmetic arithmetic_of(DType type) {
  if (is_block(type)) return Arithmetic::Int8;
  return type == DType::BF16 ? Arithmetic::Bf16 : Arithmetic::F32;
}

namespace {

// Adds up the products of a step.
class Tally {
 public:
  Tally(StepCost& cost, double tokens) : cost_(cost), tokens_(tokens) {}

  // `share` of the matrix is read, and each token is multiplied with `use` of it.
  void add(const kernels::Weight& weight, double share = 1, double use = 1) {
    for (const TensorView& part : weight.parts) {
      cost_.bytes += share * static_cast<double>(part.bytes());
      cost_.operations[static_cast<size_t>(arithmetic_of(part.dtype))] +=
          2 * use * tokens_ * static_cast<double>(part.elements());
    }
  }
  void add(const models::AttentionWeights& mixer) {
    add(mixer.qkv);
    add(mixer.gate);
    add(mixer.out);
    add(mixer.qkv_adapter);
    add_all({&mixer.indexer.query, &mixer.indexer.key});
  }
  void add(const models::Adapter& adapter) {
    add(adapter.down);
    for (const kernels::Weight& up : adapter.ups) add(up);
  }
  void add(const models::LatentWeights& mixer) {
    add_all({&mixer.in, &mixer.query_up, &mixer.out, &mixer.indexer.query, &mixer.indexer.key,
             &mixer.indexer.weights});
    for (const kernels::Weight& weight : mixer.key_up) add(weight);
    for (const kernels::Weight& weight : mixer.value_up) add(weight);
  }
  void add(const models::ShortConvWeights& mixer) { add_all({&mixer.in, &mixer.out}); }
  void add(const models::DeltaWeights& mixer) { add_all({&mixer.in, &mixer.gate, &mixer.decay, &mixer.out}); }
  void add(const models::StateSpaceWeights& mixer) { add_all({&mixer.in, &mixer.out}); }
  void add(const models::ChannelScanWeights& mixer) {
    add_all({&mixer.in, &mixer.parameters, &mixer.step, &mixer.out});
  }
  void add(const models::BesideWeights& mixer) {
    add(mixer.attention);
    add(mixer.scan);
  }
  void add(const models::AfterBlockWeights& mixer) {
    add(mixer.attention);
    add(mixer.ffn);
    add(mixer.out);
    add(mixer.scan);
  }
  void add(const models::NoWeights&) {}
  void add(const models::DenseWeights& ffn) {
    add(ffn.gate_up);
    add(ffn.down);
    add(ffn.adapter);
  }
  void add(const models::XieluWeights& ffn) {
    add(ffn.up);
    add(ffn.down);
  }
  // With tokens that choose evenly, an expert is left out by all of them with (1 - used / experts)^tokens.
  void add_experts(const models::MoeWeights& ffn, const models::MoeFfn& spec) {
    const double use = double(spec.routing.used) / spec.routing.experts;
    const double share = 1 - std::pow(1 - use, tokens_);
    const auto routed = static_cast<size_t>(spec.routing.experts);
    for (const auto* bank : {&ffn.experts.gate_up, &ffn.experts.down})
      for (size_t i = 0; i < bank->size(); ++i) i < routed ? add((*bank)[i], share, use) : add((*bank)[i]);
    add(ffn.shared);
    add(ffn.router);
    add(ffn.latent_down);
    add(ffn.latent_up);
    add(ffn.shared_gate);
  }

 private:
  void add_all(std::initializer_list<const kernels::Weight*> weights) {
    for (const kernels::Weight* weight : weights) add(*weight);
  }

  StepCost& cost_;
  double tokens_;
};

// Of a layer that reads keys.
int query_heads(const models::LayerSpec& layer) {
  if (const auto* both = std::get_if<models::AttentionBesideStateSpace>(&layer.mixer))
    return both->attention.heads;
  if (const auto* block = std::get_if<models::StateSpaceAfterBlock>(&layer.mixer))
    return block->attention.heads;
  if (const auto* latent = std::get_if<models::LatentAttention>(&layer.mixer)) return latent->heads;
  return std::get<models::Attention>(layer.mixer).heads;
}

// Attention to chosen positions: each token reads those, and the index keys of all.
void add_chosen(StepCost& cost, const models::LayerSpec& layer, const models::PagedKv& kv, DType kv_type,
                const StepShape& shape) {
  const models::PositionChoice choice = models::choice_of(layer);
  const double mean = shape.depth + (shape.tokens + 1) / 2.0, context = shape.depth + shape.tokens;
  const auto chosen = double(choice.most), index = double(kv.index_dim);
  cost.attention_operations +=
      2.0 * shape.sequences * shape.tokens *
      (query_heads(layer) * double(kv.key_dim + kv.value_dim) * std::min(mean, chosen) +
       choice.heads * index * mean);
  const double numbers =
      std::min(context, chosen * shape.tokens) * (double(kv.width()) - index) + context * index;
  cost.bytes += shape.sequences * numbers * static_cast<double>(info(kv_type).block_bytes);
}

void add_attention(StepCost& cost, const models::ModelSpec& spec, DType kv_type, const StepShape& shape) {
  const std::vector<models::LayerState> states = models::layer_states(spec);
  cost.bytes += 2.0 * shape.sequences * static_cast<double>(models::state_bytes(states));  // read and written
  for (size_t i = 0; i < states.size(); ++i) {
    const models::PagedKv* read = models::kv_of(states, i);
    if (read == nullptr) continue;
    const models::PagedKv& kv = *read;
    const auto seen = [&](double context) {
      return kv.window > 0 ? std::min(context, double(kv.window)) : context;
    };
    if (models::choice_of(spec.layers[i]).most > 0) {
      add_chosen(cost, spec.layers[i], kv, kv_type, shape);
      continue;
    }
    const double mean_context = seen(shape.depth + (shape.tokens + 1) / 2.0);
    cost.attention_operations += 2.0 * shape.sequences * shape.tokens * query_heads(spec.layers[i]) *
                                 (kv.key_dim + kv.value_dim) * mean_context;
    if (std::holds_alternative<models::KvOf>(states[i])) continue;
    const double context = seen(shape.depth + shape.tokens);
    cost.bytes += shape.sequences * context * static_cast<double>(kv.width()) * info(kv_type).block_bytes;
  }
}

}  // namespace

Limits measure_limits(int threads) {
  using Peak = kernels::cpu::Arithmetic;
  ThreadPool pool(threads);
  Limits limits;
  limits.read = kernels::cpu::peak_read_rate(pool);
  for (const auto& [ours, peak] :
       {std::pair(Arithmetic::Int8, Peak::Int8), std::pair(Arithmetic::Bf16, Peak::Bf16),
        std::pair(Arithmetic::F32, Peak::F32)})
    limits.multiply[static_cast<size_t>(ours)] = kernels::cpu::peak_multiply_rate(peak, pool);
  return limits;
}

StepCost step_cost(const models::Model& model, DType kv_type, const StepShape& shape) {
  StepCost cost;
  Tally layers(cost, double(shape.sequences) * shape.tokens);
  for (size_t i = 0; i < model.weights.layers.size(); ++i) {
    const models::LayerWeights& layer = model.weights.layers[i];
    std::visit([&](const auto& mixer) { layers.add(mixer); }, layer.mixer);
    if (const auto* experts = std::get_if<models::MoeWeights>(&layer.ffn)) {
      layers.add_experts(*experts, std::get<models::MoeFfn>(model.spec().layers[i].ffn));
    } else if (const auto* dense = std::get_if<models::DenseWeights>(&layer.ffn)) {
      layers.add(*dense);
    } else if (const auto* both = std::get_if<models::DenseBesideExpertsWeights>(&layer.ffn)) {
      layers.add(both->dense);
      layers.add_experts(both->experts,
                         std::get<models::DenseBesideExperts>(model.spec().layers[i].ffn).experts);
    } else if (const auto* xielu = std::get_if<models::XieluWeights>(&layer.ffn)) {
      layers.add(*xielu);
    }
  }
  Tally(cost, shape.sequences).add(model.weights.output);
  add_attention(cost, model.spec(), kv_type, shape);
  return cost;
}

Floor step_floor(const StepCost& cost, const Limits& limits) {
  const double reading = cost.bytes / limits.read;
  double multiplying = cost.attention_operations / limits.multiply[static_cast<size_t>(Arithmetic::Bf16)];
  for (size_t i = 0; i < cost.operations.size(); ++i) multiplying += cost.operations[i] / limits.multiply[i];
  return reading >= multiplying ? Floor{reading, Bound::Memory} : Floor{multiplying, Bound::Compute};
}

}  // namespace sluice::lab

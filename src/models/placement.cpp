#include "models/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "models/group/layer_cut.h"
#include "models/group/stage_cut.h"

namespace sluice::models {

namespace {

const MoeFfn* experts_of(const LayerSpec& layer) {
  if (const auto* beside = std::get_if<DenseBesideExperts>(&layer.ffn)) return &beside->experts;
  return std::get_if<MoeFfn>(&layer.ffn);
}

// Of all layers, so that every stage refuses what one of them cannot run.
Status check_experts(const ModelSpec& spec, const Share& share) {
  if (share.whole()) return {};
  bool any = false;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MoeFfn* experts = experts_of(spec.layers[i]);
    if (experts == nullptr) continue;
    any = true;
    if (experts->routing.experts % share.size != 0)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("layer {} has {} experts, which {} ranks (--ep) cannot share equally", i,
                               experts->routing.experts, share.size)};
  }
  if (any) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("no layer of the model has experts that {} ranks (--ep) could share", share.size)};
}

// Why ranks that each see some of the keys cannot attend to them; empty: they can.
struct WhyNoContext {
  int ranks;

  std::string operator()(const Attention& m) const {
    if (m.indexer.chosen > 0 && m.indexer.size % ranks != 0)
      return fmt::format("chooses blocks of {} positions", m.indexer.size);
    return m.alibi > 0.0f && m.sinks ? "adds biases of positions to its scores, and sinks" : "";
  }
  std::string operator()(const AttentionBesideStateSpace& m) const { return (*this)(m.attention); }
  std::string operator()(const StateSpaceAfterBlock& m) const { return (*this)(m.attention); }
  std::string operator()(const auto&) const { return ""; }
};

Status check_context(const ModelSpec& spec, const Share& share) {
  constexpr int kMostListed = 1 << 24;  // chosen positions travel as floats
  if (share.whole()) return {};
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (const std::string why = std::visit(WhyNoContext{share.size}, spec.layers[i].mixer); !why.empty())
      return Error{ErrorCode::Unsupported,
                   fmt::format("layer {} {}, which {} ranks (--cp) cannot share", i, why, share.size)};
    if (choice_of(spec.layers[i]).most > 0 && spec.context > kMostListed)
      return Error{ErrorCode::Unsupported,
                   fmt::format("layer {} chooses among {} positions, {} ranks (--cp) can share {}", i,
                               spec.context, share.size, kMostListed)};
  }
  return {};
}

Status check_stages(const ModelSpec& spec, const Placement& placement) {
  const Share& stage = placement.stage;
  if (stage.whole()) return {};
  if (std::cmp_less(spec.layers.size(), stage.size))
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("the model has {} layers, {} stages (--pp) are wanted", spec.layers.size(), stage.size)};
  const std::vector<int>& counts = placement.stage_layers;
  if (const auto sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      !counts.empty() && std::cmp_not_equal(sum, spec.layers.size()))
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("--pp-layers gives the stages {} layers, the model has {}", sum, spec.layers.size()),
        "pp-layers"};
  if (spec.per_layer_embedding > 0 || std::any_of(spec.layers.begin(), spec.layers.end(), reads_tokens))
    return Error{ErrorCode::Unsupported,
                 "layers read the token's embedding: they cannot be cut over stages (--pp)"};
  return {};
}

// The windows of the layers' keys and values, and -1 where a layer keeps a state.
std::set<int> kinds_of_state(const ModelSpec& spec) {
  const std::vector<LayerState> states = layer_states(spec);
  std::set<int> kinds;
  for (size_t i = 0; i < states.size(); ++i) {
    if (const PagedKv* kv = kv_of(states, i)) kinds.insert(kv->window);
    if (recurrent_of(states[i]) != nullptr) kinds.insert(-1);
  }
  return kinds;
}

// A layer of the stage that reads another's KV reads it by that one's number in the stage.
Status renumber(ModelSpec& part, const Range& layers) {
  for (size_t i = 0; i < part.layers.size(); ++i) {
    auto* attention = std::get_if<Attention>(&part.layers[i].mixer);
    if (attention == nullptr || attention->kv_from < 0) continue;
    if (attention->kv_from < layers.begin)
      return Error{ErrorCode::Unsupported,
                   fmt::format("layer {} reads the keys of layer {}, which lies on another stage (--pp)",
                               layers.begin + static_cast<int64_t>(i), attention->kv_from)};
    attention->kv_from -= static_cast<int>(layers.begin);
  }
  return {};
}

// A layer that attends to the positions of the layer before has that one in its stage.
Status check_choice(const ModelSpec& part, const Range& layers) {
  const auto* first = std::get_if<LatentAttention>(&part.layers.front().mixer);
  if (first == nullptr || first->indexer.chosen == 0 || first->indexer.heads > 0) return {};
  return Error{
      ErrorCode::Unsupported,
      fmt::format("layer {} attends to the positions that layer {} chose, which lies on another stage (--pp)",
                  layers.begin, layers.begin - 1)};
}

// The layers of a stage.
Result<ModelSpec> layers_of(const ModelSpec& spec, const Placement& placement) {
  ModelSpec part = spec;
  const Range layers = placement.layers(spec);
  part.layers.assign(spec.layers.begin() + layers.begin, spec.layers.begin() + layers.end);
  if (Status status = renumber(part, layers); !status) return status.error();
  if (Status status = check_choice(part, layers); !status) return status.error();
  if (kinds_of_state(part) != kinds_of_state(spec))
    return Error{
        ErrorCode::Unsupported,
        fmt::format(
            "layers {} to {} do not keep every kind of KV and state that the model keeps: each of the {} "
            "stages (--pp) must",
            layers.begin, layers.end - 1, placement.stage.size)};
  return part;
}

}  // namespace

Status Cuts::check() const {
  if (tensor > 1 && tensor % experts != 0)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--ep is {} and --tp is {}: the ranks of --tp share the experts, and --ep must "
                             "divide their number",
                             experts, tensor),
                 "ep"};
  if (!stage_layers.empty() && std::cmp_not_equal(stage_layers.size(), stages))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--pp-layers has {} numbers and --pp is {}: every stage has one",
                             stage_layers.size(), stages),
                 "pp-layers"};
  if (std::any_of(stage_layers.begin(), stage_layers.end(), [](int count) { return count < 1; }))
    return Error{ErrorCode::InvalidArgument, "--pp-layers: every stage has one layer at least", "pp-layers"};
  if (micro_batches > stages)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--pp-micro-batches is {} and --pp is {}: no more steps run at the same time "
                             "than there are stages",
                             micro_batches, stages),
                 "pp-micro-batches"};
  if (sequence && tensor == 1)
    return Error{ErrorCode::InvalidArgument,
                 "--sp is on and --tp is 1: the ranks of --tp share the tokens, and there must be at least 2",
                 "sp"};
  if (context > 1 && sequence)
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("--cp is {} and --sp is on: ranks share a step's tokens by one of them", context), "cp"};
  return {};
}

Range Placement::layers(const ModelSpec& spec) const {
  return all_layers(spec)[static_cast<size_t>(stage.index)];
}

std::vector<Range> Placement::all_layers(const ModelSpec& spec) const {
  if (stage.whole()) return {{0, static_cast<int64_t>(spec.layers.size())}};
  if (!stage_layers.empty()) {
    std::vector<Range> ranges;
    for (const int count : stage_layers) {
      const int64_t begin = ranges.empty() ? 0 : ranges.back().end;
      ranges.push_back({begin, begin + count});
    }
    return ranges;
  }
  const auto logits_of = [&](int index) {
    Placement other = *this;
    other.stage.index = index;
    return other.logits(spec.vocab).size() * tensor.size * embedding_width(spec);
  };
  return cut_stages(spec, stage.size, {logits_of(0), logits_of(stage.size - 1)});
}

Range Placement::logits(int64_t vocab) const {
  constexpr int64_t kTile = 32;  // rows that back-ends keep together
  const bool only_stages = !stage.whole() && tensor.whole() && experts.whole() && context.whole();
  const int64_t half = vocab / 2 / kTile * kTile;
  if (!only_stages || !on_host || half == 0) return last_stage() ? tensor.of(vocab) : Range();
  if (first_stage()) return {0, half};
  return last_stage() ? Range{half, vocab} : Range();
}

Placement placement_of(int rank, const Cuts& cuts) {
  const int place = rank % cuts.summed(), inner = cuts.tensor > 1 ? cuts.tensor / cuts.experts : 1;
  const Share tensor{cuts.tensor > 1 ? place : 0, cuts.tensor};
  const Share context{rank % cuts.group() / cuts.summed(), cuts.context};
  return {.tensor = tensor,
          .experts = {cuts.experts > 1 ? place / inner : 0, cuts.experts},
          .expert_inner = {place % inner, inner},
          .stage = {rank / cuts.group(), cuts.stages},
          .tokens = cuts.sequence ? tensor : context,
          .context = context,
          .stage_layers = cuts.stage_layers};
}

Range shared_of(int count, const Share& share) {
  if (count % share.size == 0) return share.of(count);
  const int64_t one = int64_t{count} * share.index / share.size;
  return {one, one + 1};
}

int64_t kv_bytes_per_token(const ModelSpec& spec, DType kv_type, const Share& context) {
  int64_t index = 0;
  for (const LayerState& state : layer_states(spec))
    if (const auto* kv = std::get_if<PagedKv>(&state)) index += kv->index_dim;
  const int64_t index_bytes = row_bytes(kv_type, index);
  return (kv_bytes_per_token(spec, kv_type) - index_bytes) / context.size + index_bytes;
}

Range index_heads_of(const Attention& attention, const Share& share) {
  const int64_t heads = attention.indexer.heads;
  if (heads == 0) return {};
  const Range kv = shared_of(attention.kv_heads, share);
  return {kv.begin * heads / attention.kv_heads, (kv.end - 1) * heads / attention.kv_heads + 1};
}

Result<ModelSpec> cut(const ModelSpec& spec, const Placement& placement) {
  if (Status status = check_stages(spec, placement); !status) return status.error();
  if (Status status = check_experts(spec, placement.experts); !status) return status.error();
  if (Status status = check_context(spec, placement.context); !status) return status.error();
  ModelSpec part;
  // Every rank looks at all stages: what one of them cannot run all of them refuse.
  Placement other = placement;
  for (int stage = 0; stage < placement.stage.size; ++stage) {
    other.stage.index = stage;
    Result<ModelSpec> one = layers_of(spec, other);
    if (!one) return one.error();
    if (stage == placement.stage.index) part = std::move(*one);
  }
  const Range layers = placement.layers(spec);
  if (placement.tensor.whole()) return part;
  if (spec.streams.count > 0)
    return Error{
        ErrorCode::Unsupported,
        "several streams of residuals are normed at once: the model cannot be cut over ranks (--tp)"};
  for (size_t i = 0; i < part.layers.size(); ++i)
    if (Status status = cut_layer(part.layers[i], spec, placement, layers.begin + static_cast<int64_t>(i));
        !status)
      return status.error();
  return part;
}

}  // namespace sluice::models

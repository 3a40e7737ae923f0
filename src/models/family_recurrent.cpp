// What families with layers that keep a state are written with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/recurrent.h"
#include "models/family.h"

namespace sluice::models {

namespace {

constexpr int kMaxTaps = 16;

void check_delta(Config& c, const GatedDelta& m) {
  if (m.key_heads < 1 || m.value_heads % m.key_heads != 0)
    c.fail(fmt::format("{} value heads cannot share {} key heads", m.value_heads, m.key_heads));
  for (const int dim : {m.key_dim, m.value_dim})
    if (dim < 1 || dim > kernels::DeltaRule::kMaxDim)
      c.fail(
          fmt::format("linear attention has heads of {}, must be 1 to {}", dim, kernels::DeltaRule::kMaxDim));
  check_convolution(c, m.taps);
}

void check_space(Config& c, const StateSpace& m) {
  if (m.groups < 1 || m.heads % std::max(1, m.groups) != 0 || m.head_dim < 1)
    c.fail(
        fmt::format("{} heads of {} cannot share {} groups of a state space", m.heads, m.head_dim, m.groups));
  if (m.state_dim < 1 || m.state_dim > kernels::SelectiveScan::kMaxStateDim)
    c.fail(fmt::format("a state space has states of {}, must be 1 to {}", m.state_dim,
                       kernels::SelectiveScan::kMaxStateDim));
  if (m.norm_groups < 1 || m.inner() % std::max(1, m.norm_groups) != 0)
    c.fail(fmt::format("{} channels cannot be normed in {} groups", m.inner(), m.norm_groups));
  check_convolution(c, m.taps);
}

}  // namespace

void check_taps(Config& c, int taps) {
  if (taps < 2 || taps > kMaxTaps)
    c.fail(fmt::format("a convolution has {} taps, must be 2 to {}", taps, kMaxTaps));
}

void check_convolution(Config& c, int taps) {
  check_taps(c, taps);
  if (!c.is_gguf()) expect_text(c, c.has("mamba_hidden_act") ? "mamba_hidden_act" : "hidden_act", "silu");
}

namespace {

std::string kind_of_tensors(const Config& c, int layer, std::string_view recurrent) {
  const auto has = [&](std::string_view name) {
    return c.stores(fmt::format("blk.{}.{}.weight", layer, name));
  };
  if (has("attn_k") || has("attn_kv_a_mqa"))
    return has("ssm_conv1d_k") ? std::string(recurrent) : "full_attention";
  if (has("ssm_conv1d") || has("shortconv.conv")) return std::string(recurrent);
  return has("ffn_gate_inp") ? "moe" : "mlp";
}

}  // namespace

std::vector<std::string> layer_kinds(Config& c, std::string_view recurrent) {
  if (!c.is_gguf()) return c.texts(c.has("layer_types") ? "layer_types" : "layers_block_type");
  std::vector<std::string> kinds;
  const std::vector<double> heads = c.numbers("num_key_value_heads");
  if (c.stores("blk.0.attn_norm.weight"))
    for (int layer = 0; layer < c.size("num_hidden_layers"); ++layer)
      kinds.push_back(kind_of_tensors(c, layer, recurrent));
  if (heads.size() < 2) return kinds;
  if (kinds.empty())
    for (const double count : heads) kinds.emplace_back(count > 0 ? "full_attention" : recurrent);
  c.drop("num_key_value_heads");
  c.assume("num_key_value_heads", static_cast<int64_t>(*std::max_element(heads.begin(), heads.end())));
  return kinds;
}

GatedDelta gated_delta(Config& c) {
  GatedDelta m;
  if (c.is_gguf()) {
    m.key_heads = c.size("ssm_groups");
    m.value_heads = c.size("ssm_step_rank");
    m.key_dim = c.size("ssm_state_size");
    m.value_dim = c.size("ssm_inner_size") / m.value_heads;
    m.taps = c.size_or("ssm_taps", 4);
    m.tiled = true;
  } else {
    m.key_heads = c.size("linear_num_key_heads");
    m.value_heads = c.size("linear_num_value_heads");
    m.key_dim = c.size("linear_key_head_dim");
    m.value_dim = c.size("linear_value_head_dim");
    m.taps = c.size_or("linear_conv_kernel_dim", 4);
  }
  m.norm_eps = c.number_or("rms_norm_eps", 1e-6f);
  check_delta(c, m);
  return m;
}

StateSpace state_space(Config& c, int dim) {
  StateSpace m;
  if (c.is_gguf()) {
    m.heads = c.size("ssm_step_rank");
    m.head_dim = c.size("ssm_inner_size") / m.heads;
    m.groups = c.size_or("ssm_groups", 1);
    m.state_dim = c.size("ssm_state_size");
    m.taps = c.size_or("ssm_taps", 4);
  } else {
    const int inner = c.size_or("mamba_d_ssm", c.size_or("mamba_expand", 2) * dim);
    m.heads = c.size("mamba_n_heads");
    m.head_dim = inner / m.heads;
    m.groups = c.size_or("mamba_n_groups", 1);
    m.state_dim = c.size("mamba_d_state");
    m.taps = c.size_or("mamba_d_conv", 4);
    const std::vector<double> limits = c.numbers("time_step_limit");
    if (limits.size() == 2) {
      m.least_step = static_cast<float>(limits[0]);
      m.largest_step = static_cast<float>(limits[1]);
    }
  }
  m.norm_eps = c.number_or("rms_norm_eps", c.number_or("layer_norm_eps", 1e-5f));
  check_space(c, m);
  return m;
}

StateSpace state_space_of_least_steps(Config& c, int dim) {
  c.drop("time_step_limit");
  StateSpace m = state_space(c, dim);
  m.least_step = c.number_or("time_step_min", 1e-3f);
  return m;
}

namespace {

// For each layer, whether it runs a shared block.
std::vector<bool> hybrid_layers(Config& c, size_t layers) {
  std::vector<bool> hybrid(layers);
  const std::vector<std::string> kinds = layer_kinds(c, "mamba");
  if (!kinds.empty() && kinds.size() != layers)
    c.fail(fmt::format("'layers_block_type' has {} entries for {} layers", kinds.size(), layers));
  for (size_t i = 0; i < std::min(layers, kinds.size()); ++i) {
    hybrid[i] = kinds[i] == "hybrid";
    if (!hybrid[i] && kinds[i] != "mamba" && kinds[i] != "linear_attention")
      c.fail(fmt::format("'layers_block_type' has '{}', which is not known", kinds[i]));
  }
  if (!kinds.empty()) return hybrid;
  if (!c.has("hybrid_layer_ids")) c.fail("'layers_block_type' is missing, and so are 'hybrid_layer_ids'");
  for (const double id : c.numbers("hybrid_layer_ids")) {
    const bool known = id >= 0 && id < static_cast<double>(layers);
    if (!known) c.fail(fmt::format("'hybrid_layer_ids' has {}, there are {} layers", id, layers));
    if (known) hybrid[static_cast<size_t>(id)] = true;
  }
  return hybrid;
}

constexpr NameRow kSharedBlockNames[] = {
    {WeightSlot::BlockOut, "model.layers.{l}.linear"},
    {WeightSlot::GateUp, "model.layers.{l}.feed_forward.gate_up_proj"},
    {WeightSlot::GateUpAdapterDown, "model.layers.{l}.feed_forward.gate_up_proj_adapter_list.{e}.0"},
    {WeightSlot::GateUpAdapterUp, "model.layers.{l}.feed_forward.gate_up_proj_adapter_list.{e}.1"},
    {WeightSlot::QkvAdapterDown, "model.layers.{l}.self_attn.linear_q_adapter_list.{e}.0"},
    {WeightSlot::QkvAdapterDown, "model.layers.{l}.self_attn.linear_k_adapter_list.{e}.0"},
    {WeightSlot::QkvAdapterDown, "model.layers.{l}.self_attn.linear_v_adapter_list.{e}.0"},
    {WeightSlot::QueryAdapterUp, "model.layers.{l}.self_attn.linear_q_adapter_list.{e}.1"},
    {WeightSlot::KeyAdapterUp, "model.layers.{l}.self_attn.linear_k_adapter_list.{e}.1"},
    {WeightSlot::ValueAdapterUp, "model.layers.{l}.self_attn.linear_v_adapter_list.{e}.1"},
};

}  // namespace

void use_shared_blocks(Config& c, ModelSpec& spec, StateSpaceAfterBlock m) {
  const auto turns = static_cast<size_t>(std::max(1, c.size_or("num_mem_blocks", 1)));
  const std::vector<bool> hybrid = hybrid_layers(c, spec.layers.size());
  std::vector<int> uses;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = {.mixer = m.scan, .ffn = NoFfn{}};
    if (!hybrid[i]) continue;
    uses.push_back(static_cast<int>(i));
    m.use = static_cast<int>(uses.size() - 1);
    m.block_names = fmt::format("model.layers.{}.shared_transformer", i);
    // Files whose embeddings are not tied may have a block for every layer.
    const bool own = uses.size() <= turns || c.stores(m.block_names + ".self_attn.q_proj.weight");
    m.block_from = own ? -1 : uses[static_cast<size_t>(m.use) % turns];
    if (!own) m.block_names = fmt::format("model.layers.{}.shared_transformer", m.block_from);
    m.scan_names = fmt::format("model.layers.{}.mamba_decoder", i);
    spec.layers[i] = {.mixer = m, .ffn = NoFfn{}, .wiring = Wiring::TokensBeside};
  }
  spec.names = spec.names.with(kSharedBlockNames);
}

}  // namespace sluice::models

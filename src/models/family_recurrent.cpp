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

}  // namespace sluice::models

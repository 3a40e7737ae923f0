#include "models/loading/config/published.h"

#include <algorithm>
#include <charconv>

namespace sluice::models {

namespace {

json::array as_json(const std::vector<std::string>& texts) {
  json::array out;
  for (const std::string& text : texts) out.emplace_back(json::string(text));
  return out;
}

json::array as_json(const std::vector<double>& numbers) {
  json::array out;
  for (const double number : numbers) out.emplace_back(number);
  return out;
}

// Lists of no more entries than there are layers.
void trim(Config& c, size_t layers) {
  std::vector<std::string> kinds = c.texts("layer_types");
  if (kinds.size() > layers) {
    kinds.resize(layers);
    c.drop("layer_types");
    c.assume("layer_types", as_json(kinds));
  }
  for (const char* key : {"swiglu_limits", "swiglu_limits_shared"}) {
    std::vector<double> limits = c.numbers(key);
    if (limits.size() <= layers) continue;
    limits.resize(layers);
    c.drop(key);
    c.assume(key, as_json(limits));
  }
}

// A list, or a text with commas between its numbers.
std::vector<double> listed_layers(Config& c, std::string_view key) {
  if (!c.is_text(key)) return c.numbers(key);
  const std::string text = c.text_or(key, "");
  std::vector<double> layers;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    int layer = 0;
    const auto [next, error] = std::from_chars(at, end, layer);
    if (error == std::errc()) layers.push_back(layer);
    if (error != std::errc() && *at != ',' && *at != ' ') {
      c.fail(std::string("'") + std::string(key) + "' is '" + text +
             "', must be numbers with commas between");
      return layers;
    }
    at = error == std::errc() ? next : at + 1;
  }
  return layers;
}

void assume_mixtures(Config& c, size_t layers) {
  if (c.has("mlp_layer_types") || !c.has("moe_layers_enum")) return;
  const std::vector<double> sparse = listed_layers(c, "moe_layers_enum");
  std::vector<std::string> kinds(layers, "dense");
  for (const double layer : sparse)
    if (layer >= 0 && layer < static_cast<double>(layers)) kinds[static_cast<size_t>(layer)] = "sparse";
  c.assume("mlp_layer_types", as_json(kinds));
}

// The scaling is of the layers that see everything.
void copy_scaling(Config& c, json::object& rope) {
  Config scaling = c.sub("rope_scaling");
  rope["rope_type"] = json::string(scaling.text_or("rope_type", scaling.text_or("type", "default")));
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
                          "attention_factor", "mscale", "mscale_all_dim"})
    if (scaling.has(key)) rope[key] = scaling.number(key);
  const char* original = "original_max_position_embeddings";
  if (scaling.has(original)) rope[original] = scaling.size(original);
}

void assume_ropes(Config& c) {
  const std::vector<std::string> kinds = c.texts("layer_types");
  const std::vector<double> thetas = c.numbers("rope_theta"), parts = c.numbers("partial_rotary_factors");
  if (c.has("rope_parameters") || (thetas.size() < 2 && parts.empty())) return;
  json::object ropes;
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    const auto layer = static_cast<size_t>(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
    json::object rope{{"rope_type", "default"}};
    if (!thetas.empty()) rope["rope_theta"] = layer < thetas.size() ? thetas[layer] : thetas[0];
    if (layer < parts.size()) rope["partial_rotary_factor"] = parts[layer];
    if (std::string_view(kind) == "full_attention" && c.has("rope_scaling")) copy_scaling(c, rope);
    ropes[kind] = std::move(rope);
  }
  for (const char* key : {"rope_theta", "rope_scaling"}) c.drop(key);
  c.assume("rope_parameters", std::move(ropes));
}

void assume_kinds(Config& c, std::string_view key, const std::vector<double>& flags,
                  std::pair<const char*, const char*> kinds) {
  if (c.has(key) || flags.empty()) return;
  json::array list;
  for (const double flag : flags) list.emplace_back(json::string(flag != 0 ? kinds.first : kinds.second));
  c.assume(key, std::move(list));
}

}  // namespace

void read_published_step3(Config& c) {
  const auto layers = static_cast<size_t>(std::min(c.size("num_hidden_layers"), 1024));
  if (c.has("num_attention_groups")) c.assume("num_key_value_heads", c.size("num_attention_groups"));
  if (c.has("share_expert_dims")) c.assume("share_expert_dim", c.size("share_expert_dims"));
  assume_ropes(c);
  trim(c, layers);
  assume_mixtures(c, layers);
}

void read_published_minimax_m3(Config& c) {
  Config sparse = c.sub("sparse_attention_config");
  for (const auto& [key, published] : {std::pair{"index_block_size", "sparse_block_size"},
                                       std::pair{"index_topk_blocks", "sparse_topk_blocks"},
                                       std::pair{"index_local_blocks", "sparse_local_block"},
                                       std::pair{"index_n_heads", "sparse_num_index_heads"},
                                       std::pair{"index_head_dim", "sparse_index_dim"}}) {
    if (!sparse.has(published)) continue;
    c.drop(key);
    c.assume(key, sparse.size(published));
  }
  assume_kinds(c, "layer_types", sparse.numbers("sparse_attention_freq"),
               {"minimax_m3_sparse", "full_attention"});
  assume_kinds(c, "mlp_layer_types", c.numbers("moe_layer_freq"), {"sparse", "dense"});
}

void read_published_mimo_v2(Config& c) {
  if (c.has("sliding_window_size")) {
    const int before = c.size("sliding_window_size");
    c.drop("sliding_window");
    c.assume("sliding_window", before + 1);
  }
  assume_kinds(c, "layer_types", c.numbers("hybrid_layer_pattern"), {"sliding_attention", "full_attention"});
  assume_kinds(c, "mlp_layer_types", c.numbers("moe_layer_freq"), {"sparse", "dense"});
  if (c.has("rope_parameters")) return;
  const float part = c.number_or("partial_rotary_factor", 0.334f);
  c.drop("partial_rotary_factor");  // of a kind of layers
  const auto rope = [&](const char* key, float theta) {
    return json::object{{"rope_theta", c.number_or(key, theta)}, {"partial_rotary_factor", part}};
  };
  c.assume("rope_parameters", json::object{{"full_attention", rope("rope_theta", 5e6f)},
                                           {"sliding_attention", rope("swa_rope_theta", 1e4f)}});
}

}  // namespace sluice::models

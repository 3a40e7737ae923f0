#include "models/loading/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace sluice::models {

namespace {

constexpr int kMaxSize = 1 << 24;

// Older or family-specific names and the common ones. Where both are present the common one stands.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"n_embd", "hidden_size"},
    {"d_model", "hidden_size"},
    {"n_head", "num_attention_heads"},
    {"n_heads", "num_attention_heads"},
    {"num_heads", "num_attention_heads"},
    {"attention_heads", "num_attention_heads"},
    {"n_layer", "num_hidden_layers"},
    {"n_layers", "num_hidden_layers"},
    {"num_layers", "num_hidden_layers"},
    {"num_kv_heads", "num_key_value_heads"},
    {"n_head_kv", "num_key_value_heads"},
    {"multi_query_group_num", "num_key_value_heads"},
    {"n_embed", "hidden_size"},
    {"kv_channels", "head_dim"},
    {"attention_head_dim", "head_dim"},
    {"padded_vocab_size", "vocab_size"},
    {"n_positions", "max_position_embeddings"},
    {"n_ctx", "max_position_embeddings"},
    {"max_seq_len", "max_position_embeddings"},
    {"seq_length", "max_position_embeddings"},
    {"n_inner", "intermediate_size"},
    {"ffn_dim", "intermediate_size"},
    {"ffn_hidden_size", "intermediate_size"},
    {"layer_norm_epsilon", "layer_norm_eps"},
    {"norm_epsilon", "layer_norm_eps"},
    {"norm_eps", "layer_norm_eps"},
    {"layernorm_epsilon", "layer_norm_eps"},
    {"activation_function", "hidden_act"},
    {"hidden_activation", "hidden_act"},
    {"activation", "hidden_act"},
    {"num_experts", "num_local_experts"},
    {"n_routed_experts", "num_local_experts"},
    {"moe_num_experts", "num_local_experts"},
    {"moe_k", "num_experts_per_tok"},
    {"moe_topk", "num_experts_per_tok"},
    {"moe_top_k", "num_experts_per_tok"},
    {"num_shared_experts", "n_shared_experts"},
    {"num_shared_expert", "n_shared_experts"},
    {"moe_num_shared_experts", "n_shared_experts"},
    {"num_expert_group", "n_group"},
    {"num_dense_layers", "first_k_dense_replace"},
    {"route_norm", "norm_topk_prob"},
    {"route_scale", "routed_scaling_factor"},
    {"router_scaling_factor", "routed_scaling_factor"},
    {"rotary_pct", "partial_rotary_factor"},
    {"rotary_emb_base", "rope_theta"},
};

// GGUF keys after "ARCH." and the config.json names that mean the same.
constexpr std::pair<std::string_view, std::string_view> kGgufKeys[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"vocab_size", "vocab_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.key_length_swa", "local_head_dim"},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
    {"attention.value_length", "value_length"},
    {"attention.key_length_mla", "key_length_mla"},
    {"attention.value_length_mla", "value_length_mla"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.sliding_window_pattern", "sliding_window_pattern"},
    {"attention.rope_pattern", "no_rope_layers"},
    {"attention.scale", "attention_multiplier"},
    {"attention.clamp_kqv", "clip_qkv"},
    {"attention.max_alibi_bias", "alibi_bias_max"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attention.causal", "causal"},
    {"attention.indexer.top_k", "index_topk"},
    {"attention.shared_kv_layers", "num_kv_shared_layers"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"rope.dimension_count", "rotary_dim"},
    {"rope.dimension_sections", "mrope_section"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_gating_func", "expert_gating_func"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"interleave_moe_layer_step", "interleave_moe_layer_step"},
    {"shortconv.l_cache", "conv_L_cache"},
    {"ssm.conv_kernel", "ssm_taps"},
    {"ssm.inner_size", "ssm_inner_size"},
    {"ssm.state_size", "ssm_state_size"},
    {"ssm.time_step_rank", "ssm_step_rank"},
    {"ssm.group_count", "ssm_groups"},
    {"full_attention_interval", "full_attention_interval"},
    {"logit_scale", "logit_scale"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"use_parallel_residual", "use_parallel_residual"},
    {"nextn_predict_layers", "nextn_predict_layers"},
    {"attention.temperature_scale", "attn_temperature_scale"},
    {"attention.temperature_length", "attn_temperature_length"},
    {"rope.scaling.type", "rope_scaling_type"},
    {"rope.scaling.factor", "rope_scaling_factor"},
    {"rope.scaling.original_context_length", "rope_scaling_original"},
    {"rope.scaling.attn_factor", "rope_scaling_attn_factor"},
    {"rope.scaling.yarn_attn_factor", "rope_scaling_attn_factor"},
    {"rope.scaling.yarn_beta_fast", "rope_scaling_beta_fast"},
    {"rope.scaling.yarn_beta_slow", "rope_scaling_beta_slow"},
    {"rope.scaling.yarn_log_multiplier", "rope_scaling_log_multiplier"},
};

// Keys that stand without the architecture's name.
constexpr std::pair<std::string_view, std::string_view> kPlainGgufKeys[] = {
    {"xielu.alpha_p", "xielu_alpha_p"},
    {"xielu.alpha_n", "xielu_alpha_n"},
    {"xielu.beta", "xielu_beta"},
};

void apply_aliases(json::object& object) {
  for (const auto& [alias, common] : kAliases) {
    const json::value* found = object.if_contains(json::string_view(alias.data(), alias.size()));
    if (found == nullptr || found->is_null()) continue;
    const json::value value = *found;  // a copy: a new key may move the object's memory
    json::value& target = object[json::string_view(common.data(), common.size())];
    if (target.is_null()) target = value;
  }
}

std::string first_architecture(const json::object& object) {
  const json::value* names = object.if_contains("architectures");
  const json::array* list = names == nullptr ? nullptr : names->if_array();
  if (list == nullptr || list->empty() || !list->front().is_string()) return "";
  return std::string(list->front().get_string());
}

struct ToJson {
  json::value operator()(bool value) const { return value; }
  json::value operator()(int64_t value) const { return value; }
  json::value operator()(uint64_t value) const { return value; }
  json::value operator()(double value) const { return value; }
  json::value operator()(std::string_view value) const { return json::string(value.data(), value.size()); }
  json::value operator()(const formats::GgufArray& array) const {
    return std::visit([](const auto& values) { return to_array(values); }, array);
  }
  template <class T>
  static json::value to_array(const std::vector<T>& values) {
    json::array out;
    for (const T& value : values) out.push_back(ToJson()(value));
    return out;
  }
};

// Lists with a flag per layer, which mean something else than one number does.
constexpr std::string_view kLayerFlags[] = {"sliding_window_pattern", "no_rope_layers"};

// GGUF repeats a count per layer where layers differ; a list of equal numbers means the one number.
json::value collapse(std::string_view key, json::value value) {
  if (std::find(std::begin(kLayerFlags), std::end(kLayerFlags), key) != std::end(kLayerFlags)) return value;
  const json::array* list = value.if_array();
  if (list == nullptr || list->empty() || !list->front().is_number()) return value;
  for (const json::value& item : *list)
    if (item != list->front()) return value;
  return list->front();
}

}  // namespace

Result<Config> Config::from_json(json::object object, std::string what) {
  Config config;
  config.what_ = std::move(what);
  config.architecture_ = first_architecture(object);
  if (config.architecture_.empty())
    return Error{ErrorCode::Corrupt, config.what_ + ": 'architectures' is missing or empty"};
  // Models with a vision tower keep the decoder's parameters one level down.
  if (const json::value* text = object.if_contains("text_config"); text != nullptr && text->is_object()) {
    const json::object inner = text->get_object();
    config.text_type_ = first_architecture(inner);
    if (const auto type = get_string(inner, "model_type");
        config.text_type_.empty() && type && type->has_value())
      config.text_type_ = **type;
    for (const auto& [key, value] : inner)
      if (key != "tie_word_embeddings" || !object.contains(key)) object[key] = value;
  }
  apply_aliases(object);
  config.object_ = std::move(object);
  return config;
}

Result<Config> Config::from_gguf(const formats::GgufMetadata& metadata, std::string what) {
  Config config;
  config.what_ = std::move(what);
  config.source_ = Source::Gguf;
  const auto architecture = metadata.get_string("general.architecture");
  if (!architecture) return architecture.error();
  if (!architecture->has_value())
    return Error{ErrorCode::Corrupt, config.what_ + ": metadata key 'general.architecture' is missing"};
  config.architecture_ = std::string(**architecture);
  const auto take = [&](const std::string& name, std::string_view key) {
    const auto found = metadata.values().find(name);
    if (found == metadata.values().end()) return;
    config.object_[json::string_view(key.data(), key.size())] =
        collapse(key, std::visit(ToJson(), found->second));
  };
  for (const auto& [suffix, key] : kGgufKeys) take(fmt::format("{}.{}", config.architecture_, suffix), key);
  for (const auto& [name, key] : kPlainGgufKeys) take(std::string(name), key);
  if (!config.has("vocab_size")) {
    if (const auto tokens = metadata.get_strings("tokenizer.ggml.tokens"); tokens && *tokens != nullptr)
      config.object_["vocab_size"] = static_cast<int64_t>((*tokens)->size());
  }
  return config;
}

const json::value* Config::find(std::string_view key) const {
  const json::value* value = object_.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string Config::spelled(std::string_view key) const {
  for (const auto& [suffix, common] : kGgufKeys)
    if (is_gguf() && common == key) return fmt::format("{}.{}", architecture_, suffix);
  for (const auto& [name, common] : kPlainGgufKeys)
    if (is_gguf() && common == key) return std::string(name);
  return std::string(key);
}

bool Config::has(std::string_view key) const {
  return find(key) != nullptr;
}

bool Config::is_null(std::string_view key) const {
  const json::value* value = object_.if_contains(json::string_view(key.data(), key.size()));
  return value != nullptr && value->is_null();
}

void Config::assume(std::string_view key, json::value value) {
  if (!has(key)) object_[json::string_view(key.data(), key.size())] = std::move(value);
}

void Config::drop(std::string_view key) {
  object_.erase(json::string_view(key.data(), key.size()));
}

void Config::fail(std::string message) {
  if (status_->ok()) *status_ = Error{ErrorCode::Corrupt, fmt::format("{}: {}", what_, message)};
}

Status Config::status() const {
  return *status_;
}

template <class T>
T Config::take(Result<std::optional<T>> found, std::string_view key, bool required, T fallback) {
  if (!found) {
    std::string message = found.error().message;
    if (const size_t at = message.find(key); at != std::string::npos)
      message.replace(at, key.size(), spelled(key));
    fail(std::move(message));
    return fallback;
  }
  if (!found->has_value()) {
    if (required) fail(fmt::format("'{}' is missing", spelled(key)));
    return fallback;
  }
  return **found;
}

int Config::size(std::string_view key) {
  const int64_t value = take<int64_t>(get_int(object_, key), key, true, 1);
  if (value < 1 || value > kMaxSize) {
    fail(fmt::format("'{}' is {}, must be 1 to {}", spelled(key), value, kMaxSize));
    return 1;
  }
  return static_cast<int>(value);
}

int Config::size_or(std::string_view key, int fallback) {
  const int64_t value = take<int64_t>(get_int(object_, key), key, false, fallback);
  constexpr int64_t kMost = int64_t{1} << 30;
  if (value != fallback && (value < 0 || value > kMost)) {
    fail(fmt::format("'{}' is {}, must be 0 to {}", spelled(key), value, kMost));
    return fallback;
  }
  return static_cast<int>(value);
}

float Config::number(std::string_view key) {
  return static_cast<float>(take<double>(get_number(object_, key), key, true, 1.0));
}

float Config::number_or(std::string_view key, float fallback) {
  const double value = take<double>(get_number(object_, key), key, false, fallback);
  if (!(std::abs(value) < 1e30)) {
    fail(fmt::format("'{}' is {}, must be below 1e30", spelled(key), value));
    return fallback;
  }
  return static_cast<float>(value);
}

bool Config::flag_or(std::string_view key, bool fallback) {
  if (const json::value* value = find(key); value != nullptr && value->is_number())
    return value->to_number<double>() != 0.0;
  return take<bool>(get_bool(object_, key), key, false, fallback);
}

std::string Config::text_or(std::string_view key, std::string fallback) {
  return take<std::string>(get_string(object_, key), key, false, std::move(fallback));
}

std::vector<double> Config::numbers(std::string_view key) {
  std::vector<double> out;
  const json::value* value = find(key);
  if (value == nullptr) return out;
  if (value->is_number()) return {value->to_number<double>()};
  const json::array* list = value->if_array();
  if (list == nullptr) {
    fail(fmt::format("'{}' must be a list", spelled(key)));
    return out;
  }
  for (const json::value& item : *list) {
    const bool endless = item == json::object{{"__float__", "Infinity"}};  // as transformers writes it
    if (!item.is_bool() && !item.is_number() && !endless) {
      fail(fmt::format("'{}' holds something that is not a number", spelled(key)));
      return {};
    }
    out.push_back(endless          ? std::numeric_limits<double>::infinity()
                  : item.is_bool() ? static_cast<double>(item.get_bool())
                                   : item.to_number<double>());
  }
  return out;
}

std::vector<int> Config::take_sizes(std::string_view key) {
  const json::value* value = find(key);
  if (value == nullptr || !value->is_array()) return {};
  std::vector<int> sizes;
  for (double size : numbers(key)) {
    if (!(size >= 0 && size <= kMaxSize)) {
      fail(fmt::format("'{}' holds {}, must be 0 to {}", spelled(key), size, kMaxSize));
      return {};
    }
    sizes.push_back(static_cast<int>(size));
  }
  drop(key);
  if (!sizes.empty()) assume(key, sizes.front());
  return sizes;
}

std::vector<std::string> Config::texts(std::string_view key) {
  std::vector<std::string> out;
  const json::value* value = find(key);
  if (value == nullptr || !value->is_array()) return out;
  for (const json::value& item : value->get_array()) {
    if (!item.is_string()) {
      fail(fmt::format("'{}' holds something that is not a string", key));
      return {};
    }
    out.emplace_back(item.get_string());
  }
  return out;
}

Config Config::sub(std::string_view key) {
  Config inner = *this;  // shares the status
  inner.what_ = fmt::format("{}: {}", what_, key);
  inner.object_ = {};
  const json::value* value = find(key);
  if (value == nullptr) return inner;
  if (!value->is_object()) {
    fail(fmt::format("'{}' must be an object", key));
    return inner;
  }
  inner.object_ = value->get_object();
  return inner;
}

}  // namespace sluice::models

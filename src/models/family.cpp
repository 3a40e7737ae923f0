#include "models/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/options.h"

namespace sluice::models {

namespace {

constexpr int kMaxLayers = 1024;

constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"silu", Activation::Silu},
    {"swish", Activation::Silu},
    {"gelu", Activation::Gelu},
    {"gelu_new", Activation::GeluTanh},
    {"gelu_fast", Activation::GeluTanh},
    {"gelu_pytorch_tanh", Activation::GeluTanh},
    {"gelu_tanh", Activation::GeluTanh},
    {"gelu_python_tanh", Activation::GeluTanh},
    {"gelu_accurate", Activation::GeluTanh},
    {"gelu_python", Activation::Gelu},
    {"relu", Activation::Relu},
    {"relu2", Activation::Relu2},
    {"elu", Activation::Elu},
    {"sigmoid", Activation::Sigmoid},
};

// "qwen3_moe_text" and "Qwen3MoeForCausalLM" are both "qwen3moe".
std::string kind(std::string_view name) {
  name = name.substr(0, name.find("For"));
  if (name.ends_with("_text")) name.remove_suffix(5);
  std::string out;
  for (char c : name)
    if (c != '_' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

Attention& attention(LayerSpec& layer) {
  return std::get<Attention>(layer.mixer);
}

Activation activation(Config& config, std::string_view fallback, std::string_view key) {
  const std::string wanted = config.text_or(key, std::string(fallback));
  for (const auto& [text, value] : kActivations)
    if (text == wanted) return value;
  config.fail(fmt::format("'{}' is '{}', which is not known", key, wanted));
  return Activation::Silu;
}

void refuse_flags(Config& c, std::initializer_list<std::string_view> flags) {
  for (const std::string_view key : flags)
    if (c.flag_or(key, false)) c.fail(fmt::format("'{}' is true, which is not supported", key));
}

void use_gemma_attention_and_activation(Config& c) {
  const std::string known = c.text_or("hidden_activation", "gelu_pytorch_tanh");
  c.drop("hidden_act");
  c.assume("hidden_act", json::string(known));
  constexpr std::string_view kBothWays = "use_bidirectional_attention";
  c.is_text(kBothWays) ? expect_text(c, kBothWays, "vision") : refuse_flags(c, {kBothWays});
}

void expect_text(Config& c, std::string_view key, std::string_view known) {
  const std::string found = c.text_or(key, std::string(known));
  if (found != known) c.fail(fmt::format("'{}' is '{}', must be '{}'", key, found, known));
}

void check_heads(Config& c, const Attention& mixer) {
  if (mixer.kv_heads < 1 || mixer.heads % mixer.kv_heads != 0)
    c.fail(fmt::format("{} attention heads cannot share {} key-value heads", mixer.heads, mixer.kv_heads));
  if (mixer.head_dim < 2 || mixer.head_dim > 1024 || mixer.head_dim % 2 != 0)
    c.fail(fmt::format("'head_dim' is {}, must be even and 2 to 1024", mixer.head_dim));
}

ModelSpec decoder_spec(Config& c, RopeStyle gguf_style) {
  ModelSpec spec;
  spec.dim = c.size("hidden_size");
  spec.vocab = c.size("vocab_size");
  spec.context = c.size_or("max_position_embeddings", 2048);
  spec.norm_eps = c.number_or("rms_norm_eps", c.number_or("layer_norm_eps", 1e-5f));
  spec.tied_output = c.flag_or("tie_word_embeddings", false);
  spec.names = c.is_gguf() ? gguf_names() : hugging_face_names();

  const std::vector<int> kv_heads = c.take_sizes("num_key_value_heads"),
                         inner = c.take_sizes("intermediate_size");
  Attention mixer;
  mixer.heads = c.size("num_attention_heads");
  mixer.kv_heads = c.size_or("num_key_value_heads", mixer.heads);
  mixer.head_dim = c.size_or("head_dim", spec.dim / mixer.heads);
  check_heads(c, mixer);
  mixer.scale = 1.0f / std::sqrt(static_cast<float>(mixer.head_dim));
  mixer.rope = 0;
  const float part =
      c.sub("rope_parameters").number_or("partial_rotary_factor", c.number_or("partial_rotary_factor", 1.0f));
  const int dims = c.size_or("rotary_dim", static_cast<int>(static_cast<float>(mixer.head_dim) * part));
  if (dims < 2 || dims % 2 != 0 || dims > mixer.head_dim)
    c.fail(fmt::format("{} rotary dimensions do not fit heads of {}", dims, mixer.head_dim));
  const RopeStyle style = c.is_gguf() ? gguf_style : RopeStyle::NeoX;
  spec.ropes = {
      make_rope(c, {.dims = std::clamp(dims, 2, 1024), .layer_type = "full_attention", .style = style})};

  if (c.is_gguf() && c.stores("rope_factors_long.weight"))
    spec.names = spec.names.with({{WeightSlot::RopeFactors, "rope_factors_short"},
                                  {WeightSlot::RopeFactorsBeyond, "rope_factors_long"}});

  DenseFfn ffn{.inner = c.size_or("intermediate_size", 4 * spec.dim), .activation = activation(c)};
  spec.per_layer_gate = ffn.activation;
  // GGUF files count the layers that guess further tokens, which are not part of the decoder.
  const int layers = c.size("num_hidden_layers") - (c.is_gguf() ? c.size_or("nextn_predict_layers", 0) : 0);
  if (layers < 1) c.fail(fmt::format("{} layers are left to decode with", layers));
  if (layers > kMaxLayers) c.fail(fmt::format("'num_hidden_layers' is {}, limit {}", layers, kMaxLayers));
  spec.layers.assign(static_cast<size_t>(std::clamp(layers, 1, kMaxLayers)),
                     LayerSpec{.mixer = mixer, .ffn = ffn});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (i < kv_heads.size()) attention(spec.layers[i]).kv_heads = kv_heads[i];
    if (i < inner.size()) std::get<DenseFfn>(spec.layers[i].ffn).inner = inner[i];
    check_heads(c, attention(spec.layers[i]));
  }
  return spec;
}

void use_windows(Config& c, ModelSpec& spec, int pattern) {
  const int window = c.size_or("sliding_window", 0);
  if (window == 0 || !c.flag_or("use_sliding_window", true)) return;
  const std::vector<std::string> types = c.texts("layer_types");
  if (!types.empty() && types.size() != spec.layers.size()) {
    c.fail(fmt::format("'layer_types' has {} entries for {} layers", types.size(), spec.layers.size()));
    return;
  }
  std::vector<double> flags;
  if (c.is_gguf() && pattern != 0) flags = c.numbers("sliding_window_pattern");
  if (flags.size() == 1 && spec.layers.size() > 1) {
    pattern = flags[0] >= 1.0 && flags[0] <= kMaxLayers ? static_cast<int>(flags[0]) : 1;
    flags.clear();
  }
  const auto first = static_cast<size_t>(c.size_or("max_window_layers", 0));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    bool slides = pattern == 0 ? i >= first : (i + 1) % static_cast<size_t>(pattern) != 0;
    if (i < types.size()) slides = types[i] == "sliding_attention";
    if (i < flags.size()) slides = flags[i] != 0;
    if (slides) attention(spec.layers[i]).window = window;
  }
}

void use_plain_ffn(Config& c, ModelSpec& spec, std::string_view fallback_activation, std::string_view key) {
  const DenseFfn ffn{.inner = c.size_or(c.is_gguf() ? "intermediate_size" : key, 4 * spec.dim),
                     .activation = activation(c, fallback_activation),
                     .gated = false};
  for (LayerSpec& layer : spec.layers) layer.ffn = ffn;
}

float normal_quantile(double share) {
  if (!(share > 0.0)) return -std::numeric_limits<float>::infinity();
  double low = -10.0, high = 10.0;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return static_cast<float>(low);
}

void use_kv_per_head(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) attention(layer).kv_heads = attention(layer).heads;
}

void drop_all_ropes(ModelSpec& spec) {
  spec.ropes.clear();
  for (LayerSpec& layer : spec.layers) attention(layer).rope = -1;
}

void drop_rope_of_full_layers(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers)
    if (attention(layer).window == 0) attention(layer).rope = -1;
}

void drop_listed_ropes(Config& c, ModelSpec& spec) {
  const std::vector<double> has_rope = c.numbers("no_rope_layers");
  const auto interval = static_cast<size_t>(c.size_or("no_rope_layer_interval", 4));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool rope = i < has_rope.size() ? has_rope[i] != 0 : interval == 0 || (i + 1) % interval != 0;
    if (!rope) attention(spec.layers[i]).rope = -1;
  }
}

void use_multipliers(Config& c, ModelSpec& spec) {
  spec.embedding_scale = c.number_or("embedding_multiplier", 1.0f);
  spec.residual_scale = c.number_or("residual_multiplier", 1.0f);
  for (LayerSpec& layer : spec.layers) {
    Attention& mixer = attention(layer);
    mixer.scale = c.number_or("attention_multiplier", mixer.scale);
  }
}

void use_layer_thetas(Config& c, ModelSpec& spec, const std::vector<double>& thetas) {
  const Rope common = spec.ropes[0];
  RopeOptions options{.dims = static_cast<int>(2 * common.inverse_frequency.size()), .style = common.style};
  std::vector<double> made;
  spec.ropes.clear();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const double theta = i < thetas.size() ? thetas[i] : 0.0;
    const auto same = std::find(made.begin(), made.end(), theta);
    attention(spec.layers[i]).rope = theta == 0.0 ? -1 : static_cast<int>(same - made.begin());
    if (theta == 0.0 || same != made.end()) continue;
    options.theta = static_cast<float>(theta);
    spec.ropes.push_back(make_rope(c, options));
    made.push_back(theta);
  }
  if (made.size() > kMaxRopes) c.fail(fmt::format("{} thetas of rope, limit {}", made.size(), kMaxRopes));
}

void use_local_rope(Config& c, ModelSpec& spec) {
  const auto dims = static_cast<int>(2 * spec.ropes[0].inverse_frequency.size());
  spec.ropes.push_back(make_local_rope(c, dims));
  for (LayerSpec& layer : spec.layers)
    if (attention(layer).window > 0) attention(layer).rope = 1;
}

void use_ropes_of_file(Config& c, ModelSpec& spec, int full_dims, int window_dims) {
  const int most = attention(spec.layers[0]).head_dim;
  for (const int dims : {full_dims, window_dims})
    if (dims < 1 || dims > most)
      c.fail(fmt::format("{} rotary dimensions do not fit heads of {}", dims, most));
  spec.ropes = {make_rope(c, {.dims = std::clamp(full_dims, 1, most), .style = spec.ropes[0].style}),
                make_local_rope(c, std::clamp(window_dims, 1, most))};
  for (LayerSpec& layer : spec.layers) attention(layer).rope = attention(layer).window > 0 ? 1 : 0;
}

void use_ropes_by_kind(Config& c, ModelSpec& spec, const RopesByKind& otherwise) {
  const int head_dim = attention(spec.layers[0]).head_dim;
  const auto made = [&](std::string_view kind, float theta, float otherwise_part) {
    const float part = c.sub("rope_parameters").sub(kind).number_or("partial_rotary_factor", otherwise_part);
    return make_rope(c, {.dims = static_cast<int>(static_cast<float>(head_dim) * part),
                         .default_theta = theta,
                         .layer_type = kind,
                         .style = spec.ropes[0].style});
  };
  spec.ropes = {made("full_attention", otherwise.full_theta, otherwise.full_part),
                made("sliding_attention", otherwise.window_theta, otherwise.window_part)};
  for (LayerSpec& layer : spec.layers) attention(layer).rope = attention(layer).window > 0 ? 1 : 0;
}

void use_wiring(ModelSpec& spec, Wiring wiring) {
  for (LayerSpec& layer : spec.layers) layer.wiring = wiring;
}

void use_sandwich(ModelSpec& spec) {
  use_wiring(spec, Wiring::Sandwich);
  if (spec.names.rows(WeightSlot::MixerPostNorm).empty())
    spec.names = spec.names.with({{WeightSlot::MixerPostNorm, "model.layers.{l}.post_attention_layernorm"},
                                  {WeightSlot::FfnNorm, "model.layers.{l}.pre_feedforward_layernorm"},
                                  {WeightSlot::FfnPostNorm, "model.layers.{l}.post_feedforward_layernorm"}});
}

void share_last_kv(Config& c, ModelSpec& spec) {
  const auto layers = static_cast<int>(spec.layers.size());
  const int first = layers - c.size_or("num_kv_shared_layers", 0);
  for (int i = std::max(first, 0); i < layers; ++i) {
    Attention& mixer = attention(spec.layers[static_cast<size_t>(i)]);
    int from = first - 1;
    while (from >= 0 && attention(spec.layers[static_cast<size_t>(from)]).window != mixer.window) --from;
    if (from < 0) c.fail(fmt::format("no layer before {} has keys and values for layer {}", first, i));
    mixer.kv_from = from;
    if (!c.flag_or("use_double_wide_mlp", false)) continue;
    auto& ffn = std::get<DenseFfn>(spec.layers[static_cast<size_t>(i)].ffn);
    ffn.inner = 2 * std::min(ffn.inner, 1 << 24);
  }
}

LatentAttention latent_attention(Config& c, int heads) {
  LatentAttention mixer{
      .heads = heads, .q_latent = c.size_or("q_lora_rank", 0), .latent = c.size("kv_lora_rank")};
  mixer.rope_dim = c.size(c.is_gguf() ? "rotary_dim" : "qk_rope_head_dim");
  const char* key = c.has("key_length_mla") ? "key_length_mla" : "head_dim";
  mixer.nope_dim = c.is_gguf() ? c.size(key) - mixer.rope_dim : c.size("qk_nope_head_dim");
  const int width = c.size("hidden_size") / heads;
  mixer.value_dim =
      c.is_gguf() ? c.size_or("value_length_mla", c.size_or("value_length", width)) : c.size("v_head_dim");
  mixer.scale = yarn_logit_factor(c) / std::sqrt(static_cast<float>(mixer.nope_dim + mixer.rope_dim));
  mixer.rope = 0;
  return mixer;
}

AttentionTemperature query_temperature(Config& c) {
  if (c.is_gguf())
    return {c.number_or("attn_temperature_scale", 0.0f), c.size_or("rope_scaling_original", 0)};
  Config rope = c.sub("rope_parameters");
  return {rope.number_or("llama_4_scaling_beta", 0.0f), rope.size_or("original_max_position_embeddings", 0)};
}

namespace {

struct Found {
  const Architecture* architecture = nullptr;
  std::string_view name;
};

// What the text_config of a model with a vision tower says counts for more than the whole model's name.
Found find_architecture(const Config& config) {
  Found found;
  const std::string decoder = kind(config.text_type());
  for (const Architecture* architecture : architectures())
    for (std::string_view name : config.is_gguf() ? architecture->gguf : architecture->hugging_face) {
      if (!decoder.empty() && kind(name) == decoder) return {architecture, name};
      if (name == config.architecture()) found = {architecture, name};
    }
  return found;
}

Error unknown_architecture(const Config& config) {
  std::vector<std::string> known;
  for (const Architecture* architecture : architectures())
    for (std::string_view name : config.is_gguf() ? architecture->gguf : architecture->hugging_face)
      known.emplace_back(name);
  const std::string nearest = nearest_word(config.architecture(), known);
  std::string list;
  for (const std::string& name : known)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name.substr(0, name.find("ForCausalLM")));
  return {ErrorCode::Unsupported,
          fmt::format("architecture '{}' is not among the {} that are known{}; those are {}",
                      config.architecture(), known.size(),
                      nearest.empty() ? "" : fmt::format("; the nearest is '{}'", nearest), list)};
}

}  // namespace

namespace {

void settle_lengths(Config& c, ModelSpec& spec) {
  if (spec.positions == Positions::None && !spec.ropes.empty())
    spec.context = stretched_context(c, spec.context);
  for (const Rope& rope : spec.ropes) {
    const int limit = changing_rope(spec) == nullptr ? 0 : changing_rope(spec)->limit;
    if (!rope.beyond.empty() && rope.limit != limit)
      c.fail(fmt::format("ropes that change at {} and at {} positions cannot be used together", limit,
                         rope.limit));
  }
}

// kv_from: for each layer the number of an earlier one whose keys and values it reads, or null or -1 for its own, as character.ai
// shares them between layers with windows and between global ones.
void share_kv_from(Config& c, ModelSpec& spec) {
  if (!c.has("kv_from")) return;
  const std::vector<double> from = c.numbers("kv_from", -1);
  if (from.size() != spec.layers.size())
    return c.fail(
        fmt::format("kv_from has {} entries, there are {} layers", from.size(), spec.layers.size()));
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == -1 || from[i] == static_cast<double>(i)) continue;
    if (!(from[i] >= 0 && from[i] < static_cast<double>(i)) || from[i] != std::floor(from[i]))
      return c.fail(fmt::format("kv_from of layer {} is {}, must be a layer before it, or -1", i, from[i]));
    const auto source = static_cast<size_t>(from[i]);
    auto* reader = std::get_if<Attention>(&spec.layers[i].mixer);
    const auto* owner = std::get_if<Attention>(&spec.layers[source].mixer);
    if (reader == nullptr || owner == nullptr || owner->kv_from >= 0 || reader->kv_heads != owner->kv_heads ||
        reader->head_dim != owner->head_dim || reader->values() != owner->values() ||
        reader->window != owner->window || reader->chunked != owner->chunked || reader->rope != owner->rope)
      return c.fail(fmt::format("kv_from of layer {} is {}, which does not own keys and values of its shape",
                                i, source));
    reader->kv_from = static_cast<int>(source);
  }
}

}  // namespace

Result<ModelSpec> build_spec(Config& config) {
  const Found found = find_architecture(config);
  if (found.architecture == nullptr) return unknown_architecture(config);
  config.set_architecture(std::string(found.name));
  ModelSpec spec = found.architecture->build(config);
  settle_lengths(config, spec);
  share_kv_from(config, spec);
  if (Status status = config.status(); !status) return status.error();
  spec.family = config.architecture();
  return spec;
}

}  // namespace sluice::models

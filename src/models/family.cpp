#include "models/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice::models {

namespace {

constexpr int kMaxLayers = 1024;

constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"silu", Activation::Silu},          {"swish", Activation::Silu},
    {"gelu", Activation::Gelu},          {"gelu_new", Activation::GeluTanh},
    {"gelu_fast", Activation::GeluTanh}, {"gelu_pytorch_tanh", Activation::GeluTanh},
    {"relu", Activation::Relu},          {"relu2", Activation::Relu2},
};

}  // namespace

Attention& attention(LayerSpec& layer) {
  return std::get<Attention>(layer.mixer);
}

Activation activation(Config& config, std::string_view fallback) {
  const std::string wanted = config.text_or("hidden_act", std::string(fallback));
  for (const auto& [text, value] : kActivations)
    if (text == wanted) return value;
  config.fail(fmt::format("'hidden_act' is '{}', which is not known", wanted));
  return Activation::Silu;
}

ModelSpec decoder_spec(Config& c, RopeStyle gguf_style) {
  ModelSpec spec;
  spec.dim = c.size("hidden_size");
  spec.vocab = c.size("vocab_size");
  spec.context = c.size_or("max_position_embeddings", 2048);
  spec.norm_eps = c.number_or("rms_norm_eps", c.number_or("layer_norm_eps", 1e-5f));
  spec.tied_output = c.flag_or("tie_word_embeddings", false);
  spec.names = c.is_gguf() ? gguf_names() : hugging_face_names();

  Attention mixer;
  mixer.heads = c.size("num_attention_heads");
  mixer.kv_heads = c.size_or("num_key_value_heads", mixer.heads);
  mixer.head_dim = c.size_or("head_dim", spec.dim / mixer.heads);
  if (mixer.kv_heads < 1 || mixer.heads % mixer.kv_heads != 0)
    c.fail(fmt::format("{} attention heads cannot share {} key-value heads", mixer.heads, mixer.kv_heads));
  if (mixer.head_dim < 2 || mixer.head_dim > 1024 || mixer.head_dim % 2 != 0)
    c.fail(fmt::format("'head_dim' is {}, must be even and 2 to 1024", mixer.head_dim));
  mixer.scale = 1.0f / std::sqrt(static_cast<float>(mixer.head_dim));
  mixer.rope = 0;
  const float part =
      c.number_or("partial_rotary_factor", c.sub("rope_parameters").number_or("partial_rotary_factor", 1.0f));
  const int dims = c.size_or("rotary_dim", static_cast<int>(static_cast<float>(mixer.head_dim) * part));
  if (dims < 2 || dims % 2 != 0 || dims > mixer.head_dim)
    c.fail(fmt::format("{} rotary dimensions do not fit heads of {}", dims, mixer.head_dim));
  const RopeStyle style = c.is_gguf() ? gguf_style : RopeStyle::Halves;
  spec.ropes = {make_rope(c, {.dims = std::clamp(dims, 2, 1024), .style = style})};

  DenseFfn ffn{.inner = c.size_or("intermediate_size", 4 * spec.dim), .activation = activation(c)};
  const int layers = c.size("num_hidden_layers");
  if (layers > kMaxLayers) c.fail(fmt::format("'num_hidden_layers' is {}, limit {}", layers, kMaxLayers));
  spec.layers.assign(static_cast<size_t>(std::min(layers, kMaxLayers)),
                     LayerSpec{.mixer = mixer, .ffn = ffn});
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
  const std::vector<double> flags = c.is_gguf() && pattern != 0 && c.has("sliding_window_pattern")
                                        ? c.numbers("sliding_window_pattern")
                                        : std::vector<double>();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    bool slides = pattern == 0 || (i + 1) % static_cast<size_t>(pattern) != 0;
    if (i < types.size()) slides = types[i] == "sliding_attention";
    if (i < flags.size()) slides = flags[i] != 0;
    if (slides) attention(spec.layers[i]).window = window;
  }
}

MoeFfn moe_ffn(Config& c) {
  MoeFfn ffn;
  ffn.routing.score = kernels::Routing::Score::SoftmaxOfTop;
  ffn.routing.experts = c.size("num_local_experts");
  ffn.routing.used = c.size("num_experts_per_tok");
  if (ffn.routing.used > ffn.routing.experts || ffn.routing.experts > 4096) {
    c.fail(fmt::format("{} experts per token of {} experts (limit 4096)", ffn.routing.used,
                       ffn.routing.experts));
    ffn.routing.used = 1;
  }
  ffn.inner = c.size_or("moe_intermediate_size", c.size_or("intermediate_size", 0));
  if (ffn.inner < 1) c.fail("'moe_intermediate_size' is missing");
  ffn.activation = activation(c);
  return ffn;
}

Result<ModelSpec> build_spec(Config& config) {
  std::string known;
  for (const Architecture* architecture : architectures()) {
    const auto& list = config.is_gguf() ? architecture->gguf : architecture->hugging_face;
    if (std::find(list.begin(), list.end(), config.architecture()) != list.end()) {
      ModelSpec spec = architecture->build(config);
      if (Status status = config.status(); !status) return status.error();
      spec.family = config.architecture();
      return spec;
    }
    for (std::string_view name : list) known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("architecture '{}' is not known; known are: {}", config.architecture(), known)};
}

}  // namespace sluice::models

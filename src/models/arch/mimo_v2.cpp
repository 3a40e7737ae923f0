// MiMo V2: values narrower than keys, windows with sinks and twice the key-value heads, a rope for each kind of layer,
// DeepSeek 3's experts after the first dense layer.
#include <fmt/format.h>

#include "models/family.h"
#include "models/loading/config/published.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kMimoV2HuggingFace[] = {"MiMoV2FlashForCausalLM"};
constexpr std::string_view kMimoV2Gguf[] = {"mimo2"};

ModelSpec build_mimo_v2(Config& c) {
  if (!c.is_gguf()) read_published_mimo_v2(c);
  c.assume("first_k_dense_replace", 1);
  const int rotated = c.size_or("rotary_dim", 0);  // of files
  if (c.is_gguf()) c.drop("rotary_dim");
  ModelSpec spec = decoder_spec(c);
  use_windows(c, spec, 6);
  if (!c.is_gguf() && !c.has("layer_types")) attention(spec.layers[0]).window = 0;
  c.is_gguf() ? use_ropes_of_file(c, spec, rotated, rotated)
              : use_ropes_by_kind(c, spec, {.full_theta = 5e6f, .full_part = 0.334f, .window_part = 0.334f});
  const bool unscaled = c.is_gguf() || c.is_null("attention_value_scale");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    Attention& mixer = attention(spec.layers[i]);
    mixer.value_dim = c.size_or(c.is_gguf() ? "value_length" : "v_head_dim", 128);
    mixer.value_scale = c.number_or("attention_value_scale", unscaled ? 1.0f : 0.707f);
    mixer.sinks = c.is_gguf() ? c.stores(fmt::format("blk.{}.attn_sinks.weight", i)) : mixer.window > 0;
    if (!c.is_gguf() && mixer.window > 0)
      mixer.kv_heads = c.size_or("swa_num_key_value_heads", 2 * mixer.kv_heads);
    check_heads(c, mixer);
  }
  MoeFfn ffn = grouped_moe_ffn(c);
  ffn.shared_inner = 0;
  use_moe(c, spec, ffn);
  return spec;
}

}  // namespace

extern const Architecture mimo_v2{kMimoV2HuggingFace, kMimoV2Gguf, build_mimo_v2};

}  // namespace sluice::models::arch

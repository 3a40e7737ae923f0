// Llama 4 (text): rotated layers see chunks and norm their heads, the others have no positions and grow
// hotter with them; routing weights multiply what the experts read.
#include "models/family.h"

namespace sluice::models::arch {

namespace {

constexpr std::string_view kLlama4HuggingFace[] = {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"};
constexpr std::string_view kLlama4Gguf[] = {"llama4"};

void use_experts(Config& c, ModelSpec& spec) {
  if (c.size_or("num_local_experts", 0) == 0) return;
  MoeFfn ffn = moe_ffn(c);
  ffn.routing.score = kernels::Routing::Score::Sigmoid;
  ffn.weigh_inputs = true;
  ffn.shared_inner = ffn.inner;
  c.assume("decoder_sparse_step", c.size_or("interleave_moe_layer_step", 1));
  use_sparse_moe(c, spec, ffn);
}

ModelSpec build_llama4(Config& c) {
  ModelSpec spec = decoder_spec(c);
  spec.ropes[0].style = RopeStyle::GptJ;
  const int chunk = c.size_or(c.is_gguf() ? "sliding_window" : "attention_chunk_size", 8192);
  if (!c.is_gguf() || chunk > 0) drop_listed_ropes(c, spec);
  const std::vector<std::string> types = c.texts("layer_types");
  const bool norms = c.flag_or("use_qk_norm", c.size_or("num_local_experts", 0) != 128);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    Attention& mixer = attention(spec.layers[i]);
    if (mixer.rope < 0 && c.flag_or("attn_temperature_tuning", true))
      mixer.temperature = {c.number_or("attn_scale", 0.1f), c.size_or("floor_scale", 8192), 1};
    if (norms && mixer.rope >= 0) mixer.qk_norm = QkNorm::Scaleless;
    mixer.qk_norm_after_rope = true;
    mixer.chunked = chunk > 0 && (i < types.size() ? types[i] == "chunked_attention" : mixer.rope >= 0);
    if (mixer.chunked) mixer.window = chunk;
    if (!c.is_gguf()) std::get<DenseFfn>(spec.layers[i].ffn).inner = c.size("intermediate_size_mlp");
  }
  use_experts(c, spec);
  if (!c.is_gguf())
    spec.names = spec.names.with(
        {{WeightSlot::GateUp, "model.layers.{l}.feed_forward.gate_proj"},
         {WeightSlot::GateUp, "model.layers.{l}.feed_forward.up_proj"},
         {WeightSlot::Down, "model.layers.{l}.feed_forward.down_proj"},
         {WeightSlot::Router, "model.layers.{l}.feed_forward.router"},
         {WeightSlot::ExpertGateUp, "model.layers.{l}.feed_forward.experts.gate_up_proj", Fold::Transpose},
         {WeightSlot::ExpertDown, "model.layers.{l}.feed_forward.experts.down_proj", Fold::Transpose},
         {WeightSlot::SharedGateUp, "model.layers.{l}.feed_forward.shared_expert.gate_proj"},
         {WeightSlot::SharedGateUp, "model.layers.{l}.feed_forward.shared_expert.up_proj"},
         {WeightSlot::SharedDown, "model.layers.{l}.feed_forward.shared_expert.down_proj"}});
  return spec;
}

}  // namespace

extern const Architecture llama4{kLlama4HuggingFace, kLlama4Gguf, build_llama4};

}  // namespace sluice::models::arch

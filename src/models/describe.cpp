// A ModelSpec as text a person can follow: what happens to a token, in the order in which it happens.
#include <fmt/format.h>

#include <string_view>

#include "models/spec.h"

namespace sluice::models {

namespace {

std::string_view name(Activation activation) {
  switch (activation) {
    case Activation::Silu:
      return "silu";
    case Activation::Gelu:
      return "gelu";
    case Activation::GeluTanh:
      return "gelu_tanh";
    case Activation::Relu:
      return "relu";
    case Activation::Relu2:
      return "relu²";
    case Activation::SwigluOai:
      return "clamped_swiglu";
    case Activation::Elu:
      return "elu";
    case Activation::Sigmoid:
      return "sigmoid";
    case Activation::Softplus:
      return "softplus";
    case Activation::Identity:
      return "identity";
  }
  return "";
}

std::string_view name(kernels::Routing::Score score) {
  switch (score) {
    case kernels::Routing::Score::Softmax:
      return "softmax";
    case kernels::Routing::Score::Sigmoid:
      return "sigmoid";
    case kernels::Routing::Score::SoftmaxOfTop:
      return "softmax over the chosen";
    case kernels::Routing::Score::SparseMixer:
      return "softmax over the nearest";
  }
  return "";
}

struct DescribeFfn {
  std::string operator()(const DenseFfn& f) const {
    std::string text = fmt::format("ffn({}{}, inner {}{}", name(f.activation), f.gated ? " gate" : "",
                                   f.inner, f.norm_inner ? ", normed" : "");
    if (f.cuts_off()) text += fmt::format(", gates cut off at {:g} deviations", f.cutoff);
    if (f.limit > 0.0f) text += fmt::format(", clamped at {:g}", f.limit);
    if (f.adapter_rank > 0) text += fmt::format(", adapters of {}", f.adapter_rank);
    return text + ")";
  }
  std::string operator()(const MoeFfn& f) const {
    const kernels::Routing& r = f.routing;
    std::string text = fmt::format("top {} of {} experts({}, inner {}) by {}", r.used, r.experts,
                                   name(f.activation), f.inner, name(r.score));
    if (r.groups > 1) text += fmt::format(", best {} of {} groups", r.groups_used, r.groups);
    if (r.normalize) text += ", normalised";
    if (f.latent > 0) text += fmt::format(", through {} numbers", f.latent);
    if (f.weigh_inputs) text += ", inputs weighed";
    if (r.scale != 1.0f) text += fmt::format(", times {:g}", r.scale);
    if (f.router_choice_bias) text += ", choice biased";
    if (f.router_weight_scale) text += ", each times its scale";
    if (f.router_softcap > 0.0f) text += fmt::format(", logits capped at {:g}", f.router_softcap);
    if (f.shared_inner > 0)
      text += fmt::format(" + {}{}shared expert of {}",
                          f.shared_scale == 1.0f ? "" : fmt::format("{:g} * ", f.shared_scale),
                          f.shared_gate ? "gated " : "", f.shared_inner);
    return text;
  }
  std::string operator()(const DenseBesideExperts& f) const {
    return fmt::format("(norm({}) + norm({}))", (*this)(f.dense), (*this)(f.experts));
  }
  std::string operator()(const XieluFfn& f) const { return fmt::format("ffn(xielu, inner {})", f.inner); }
  std::string operator()(const NoFfn&) const { return ""; }
};

struct DescribeMixer {
  const ModelSpec& spec;

  std::string operator()(const Attention& m) const {
    std::string text = fmt::format("attention({} heads x {}, {} kv", m.heads, m.head_dim, m.kv_heads);
    text += m.window == 0 ? ", full" : fmt::format(", {} {}", m.chunked ? "chunks of" : "window", m.window);
    if (m.rope >= 0) {
      const Rope& rope = spec.ropes[static_cast<size_t>(m.rope)];
      const size_t dims = 2 * rope.inverse_frequency.size();
      text += fmt::format(
          ", rope {}[{}{}]",
          dims == static_cast<size_t>(m.head_dim) ? "" : fmt::format("{} of {} ", dims, m.head_dim),
          rope.note, rope.style == RopeStyle::GptJ ? ", interleaved" : "");
    } else {
      text += m.alibi > 0.0f ? ", linear position biases" : ", no rope";
    }
    if (m.qk_norm == QkNorm::PerHead) text += ", qk-norm per head";
    if (m.qk_norm == QkNorm::EachHead) text += ", qk-norm per head with its own gain";
    if (m.qk_norm == QkNorm::Whole) text += ", qk-norm over all heads";
    if (m.qk_norm == QkNorm::Scaleless) text += ", qk-norm without gain";
    if (m.softcap > 0.0f) text += fmt::format(", scores capped at {:g}", m.softcap);
    if (m.norm_values) text += ", values normed";
    if (m.values_are_keys) text += ", values of the keys' matrix";
    if (m.sinks) text += ", sinks";
    if (m.gated) text += m.gate_per_head ? ", heads gated" : ", gated";
    if (m.gated && m.gate != Activation::Sigmoid) text += fmt::format(" by {}", name(m.gate));
    if (m.value_dim > 0) text += fmt::format(", values {}", m.value_dim);
    if (m.value_scale != 1.0f) text += fmt::format(" times {:g}", m.value_scale);
    if (m.norm_output) text += ", normed";
    if (m.clip > 0.0f) text += fmt::format(", qkv clipped at {:g}", m.clip);
    if (m.temperature.slope > 0.0f) text += fmt::format(", hotter every {} positions", m.temperature.length);
    if (m.kv_from >= 0) text += fmt::format(", keys and values of layer {}", m.kv_from);
    if (m.adapter_rank > 0) text += fmt::format(", adapters of {}", m.adapter_rank);
    if (m.indexer.chosen > 0)
      text += fmt::format(
          ", to {} blocks of {} positions that an indexer({} heads x {}) chooses, the last {} always",
          m.indexer.chosen, m.indexer.size, m.indexer.heads, m.indexer.dim, m.indexer.local);
    return text + fmt::format(", scale {:.6g})", m.scale);
  }

  std::string operator()(const LatentAttention& m) const {
    std::string text = fmt::format(
        "latent_attention({} heads, latent {} + {} rotated, query latent {}, keys {} + {}, values {}, rope "
        "[{}]",
        m.heads, m.latent, m.rope_dim, m.q_latent, m.nope_dim, m.rope_dim, m.value_dim,
        m.rope >= 0 ? spec.ropes[static_cast<size_t>(m.rope)].note : "none");
    if (m.indexer.heads > 0)
      text += fmt::format(", to {} positions that an indexer({} heads x {}{}) chooses", m.indexer.chosen,
                          m.indexer.heads, m.indexer.dim,
                          m.indexer.style == RopeStyle::GptJ ? ", interleaved" : "");
    else if (m.indexer.chosen > 0)
      text += ", to the positions of the layer before";
    return text + ")";
  }

  std::string operator()(const ShortConv& m) const {
    return fmt::format("short_convolution({} taps)", m.taps);
  }
  std::string operator()(const GatedDelta& m) const {
    return fmt::format(
        "gated_delta_rule({} keys x {}, {} values x {}, {} taps{}{}, {} gate)", m.key_heads, m.key_dim,
        m.value_heads, m.value_dim, m.taps, m.channel_decay ? ", a decay per channel" : "",
        m.gate_latent > 0 ? fmt::format(", gates through {}", m.gate_latent) : "", name(m.gate));
  }
  std::string operator()(const StateSpace& m) const {
    const char* norm = m.norm == StateSpace::Norm::None        ? "no norm"
                       : m.norm == StateSpace::Norm::AfterGate ? "normed behind its gate"
                                                               : "normed before its gate";
    return fmt::format("state_space({} heads x {}, {} groups, state {}, {} taps, {})", m.heads, m.head_dim,
                       m.groups, m.state_dim, m.taps, norm);
  }
  std::string operator()(const ChannelScan& m) const {
    return fmt::format("channel_state_space({} channels, state {}, {} taps, steps through {}{})", m.inner,
                       m.state_dim, m.taps, m.step_rank, m.norms ? ", normed" : "");
  }
  std::string operator()(const AttentionBesideStateSpace& m) const {
    return fmt::format("({:g} * {} + {:g} * {})", m.attention_scale, (*this)(m.attention), m.scan_scale,
                       (*this)(m.scan));
  }
  std::string operator()(const StateSpaceAfterBlock& m) const {
    const std::string owner = m.block_from < 0 ? "" : fmt::format("  # weights of layer {}", m.block_from);
    return fmt::format("{} of norm(x + out of {} of norm({} of norm([x, e]))){}", (*this)(m.scan),
                       DescribeFfn()(m.ffn), (*this)(m.attention), owner);
  }
  std::string operator()(const NoMixer&) const { return ""; }
};

std::string describe_layer(const ModelSpec& spec, const LayerSpec& layer) {
  const std::string mixer = std::visit(DescribeMixer{spec}, layer.mixer);
  const std::string ffn = std::visit(DescribeFfn(), layer.ffn);
  std::string end;
  if (spec.per_layer_embedding > 0)
    end += fmt::format("  x += norm(out of gelu(gate of x) * layer_input)  # {} numbers\n",
                       spec.per_layer_embedding);
  if (layer.scaled) end += "  x *= scale\n";
  const std::string plus =
      spec.residual_scale == 1.0f ? "x +=" : fmt::format("x += {:g} *", spec.residual_scale);
  if (layer.wiring == Wiring::TokensBeside) return fmt::format("  {} {}\n", plus, mixer) + end;
  if (mixer.empty() || ffn.empty()) return fmt::format("  {} {}{} of norm(x)\n", plus, mixer, ffn) + end;
  switch (layer.wiring) {
    case Wiring::PreNorm:
      return fmt::format("  {} {} of norm(x)\n  {} {} of norm(x)\n", plus, mixer, plus, ffn) + end;
    case Wiring::PostNorm:
      return fmt::format("  {} norm({})\n  {} norm({})\n", plus, mixer, plus, ffn) + end;
    case Wiring::SumNorm:
      return fmt::format("  x = norm(x + {})\n  x = norm(x + {})\n", mixer, ffn) + end;
    case Wiring::NormedStream:
      return fmt::format("  n = norm(x); x = n + {} of n\n  n = norm(x); x = n + {} of n\n", mixer, ffn) +
             end;
    case Wiring::Sandwich:
      return fmt::format("  {} norm({} of norm(x))\n  {} norm({} of norm(x))\n", plus, mixer, plus, ffn) +
             end;
    case Wiring::BesideTokens:
      return fmt::format("  {} {} of [norm(e), norm(x)]\n  {} {} of norm(x)\n", plus, mixer, plus, ffn) + end;
    case Wiring::TokensBeside:
      break;
    case Wiring::Laurel:
      return fmt::format(
                 "  n = norm(x); x = (x + norm({} of n) + n + norm(low_rank {} of n)) / sqrt 2\n  {} norm({} "
                 "of "
                 "norm(x))\n",
                 mixer, spec.streams.laurel_rank, plus, ffn) +
             end;
    case Wiring::Parallel:
      return fmt::format("  {} {} of norm(x)\n      + {} of the same norm(x)\n", plus, mixer, ffn) + end;
    case Wiring::ParallelTwoNorms:
      return fmt::format("  {} {} of norm1(x)\n      + {} of norm2(x)\n", plus, mixer, ffn) + end;
  }
  return "";
}

}  // namespace

std::string describe(const ModelSpec& spec) {
  std::string text =
      fmt::format("x = embedding[token]{}  # {} of {} numbers\n",
                  spec.embedding_scale == 1.0f ? "" : fmt::format(" * {:g}", spec.embedding_scale),
                  spec.vocab, embedding_width(spec));
  if (spec.embedding_dim > 0) text += fmt::format("x = projection(x)  # to {} numbers\n", spec.dim);
  if (spec.positions == Positions::Learned)
    text += fmt::format("x += position[p]  # {} positions\n", spec.context);
  if (spec.positions == Positions::Sinusoidal) text += "x += sines and cosines of p\n";
  if (spec.embedding_norm) text += "x = norm(x)\n";
  if (spec.streams.count > 0)
    text += fmt::format(
        "# {} streams, predicted before and corrected behind each layer, which runs on stream {}\n",
        spec.streams.count, spec.streams.active);
  for (size_t i = 0; i < spec.layers.size();) {
    const std::string layer = describe_layer(spec, spec.layers[i]);
    size_t end = i + 1;
    while (end < spec.layers.size() && describe_layer(spec, spec.layers[end]) == layer) ++end;
    text += end == i + 1 ? fmt::format("layer {}:\n", i) : fmt::format("layers {} to {}:\n", i, end - 1);
    text += layer;
    i = end;
  }
  std::string last = spec.output_norm ? "norm(x)" : "x";
  if (spec.embedding_dim > 0) last = fmt::format("projection({})", last);
  text += fmt::format("logits = {}{} of {}", spec.tied_output ? "embedding" : "output",
                      spec.logit_scale == 1.0f ? "" : fmt::format(" * {:g}", spec.logit_scale), last);
  if (spec.logit_softcap > 0.0f) text += fmt::format(", capped at {:g}", spec.logit_softcap);
  return text +
         fmt::format("\n# norm: {}, eps {:g}\n", spec.norm == NormKind::Rms ? "rms" : "layer", spec.norm_eps);
}

}  // namespace sluice::models

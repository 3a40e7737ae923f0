// Rotary frequencies: the plain geometric row and the published ways to stretch it to longer contexts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/family.h"

namespace sluice::models {

namespace {

// Rows of frequencies that a rope may have beside its first: each length beyond the limit of "dynamic" has its own.
constexpr int kMostRows = 1 << 18;

// The parameters in one form, whichever of the three layouts they were written in: config.json's
// rope_parameters (flat or per layer type), the older rope_theta with rope_scaling, or GGUF's rope.scaling
// keys.
struct RopeScaling {
  std::string type = "default";
  float theta = 10000.0f;
  float factor = 1.0f;
  float original = 0.0f;  // context before stretching
  float low = 1.0f, high = 4.0f;
  float beta_fast = 32.0f, beta_slow = 1.0f;
  float mscale = 0.0f, mscale_all_dim = 0.0f;
  float attention_factor = 0.0f;                        // 0: from the factor
  float part = 1.0f;                                    // of \"proportional\": how many of the pairs turn
  float short_magnitude = 0.0f, long_magnitude = 0.0f;  // of "longrope", where a model says them; 0: not
  float alpha = 0.0f;                                   // of "dynamic" with a fixed stretch of theta; 0: none
  float magnitude = 1.0f;                               // factor on top of all that
  bool truncate = true;
  std::vector<double> long_factor, short_factor;
  kernels::RopeSections sections{};
};

kernels::RopeSections read_sections(Config& c) {
  kernels::RopeSections out;
  const std::vector<double> counts = c.numbers("mrope_section");
  for (size_t i = 0; i < out.counts.size() && i < counts.size(); ++i) {
    if (!(counts[i] >= 0 && counts[i] <= 4096)) c.fail("'mrope_section' must be 0 to 4096");
    out.counts[i] = counts[i] >= 0 && counts[i] <= 4096 ? static_cast<int32_t>(counts[i]) : 0;
  }
  out.interleaved = c.flag_or("mrope_interleaved", false);
  return out;
}

RopeScaling read_keys(Config& c, Config& outer, float default_theta) {
  RopeScaling s;
  s.type = c.text_or("rope_type", c.text_or("type", "default"));
  s.sections = read_sections(c);
  s.theta = c.number_or("rope_theta", outer.number_or("rope_theta", default_theta));
  const float context = outer.number_or("max_position_embeddings", 2048.0f);
  // The model's own value stands over that of its rope.
  s.original = outer.number_or("original_max_position_embeddings",
                               c.number_or("original_max_position_embeddings", context));
  if (s.type == "dynamic") s.original = context;
  const bool told_by_lengths = s.type == "longrope" || s.type == "su" || s.type == "yarn";
  s.factor = c.number_or("factor", told_by_lengths && s.original > 0.0f ? context / s.original : 1.0f);
  s.low = c.number_or("low_freq_factor", 1.0f);
  s.high = c.number_or("high_freq_factor", 4.0f);
  s.beta_fast = c.number_or("beta_fast", 32.0f);
  s.beta_slow = c.number_or("beta_slow", 1.0f);
  s.mscale = c.number_or("mscale", 0.0f);
  s.mscale_all_dim = c.number_or("mscale_all_dim", 0.0f);
  s.attention_factor = c.number_or("attention_factor", 0.0f);
  s.part = c.number_or("partial_rotary_factor", 1.0f);
  s.short_magnitude = c.number_or("short_mscale", 0.0f);
  s.long_magnitude = c.number_or("long_mscale", 0.0f);
  s.alpha = c.number_or("alpha", 0.0f);
  s.truncate = c.flag_or("truncate", true);
  s.long_factor = c.numbers("long_factor");
  s.short_factor = c.numbers("short_factor");
  return s;
}

RopeScaling read_gguf(Config& c, float default_theta) {
  RopeScaling s;
  s.theta = c.number_or("rope_theta", default_theta);
  s.type = c.text_or("rope_scaling_type", "default");
  if (s.type == "none") s.type = "default";
  s.factor = c.number_or("rope_scaling_factor", 1.0f);
  s.original = c.number_or("rope_scaling_original", c.number_or("max_position_embeddings", 2048.0f));
  s.beta_fast = c.number_or("rope_scaling_beta_fast", 32.0f);
  s.beta_slow = c.number_or("rope_scaling_beta_slow", 1.0f);
  s.truncate = c.flag_or("rope_scaling_truncate", true);
  s.mscale_all_dim = c.number_or("rope_scaling_log_multiplier", 0.0f) * 10.0f;
  s.mscale = s.mscale_all_dim;
  if (s.type == "longrope") s.attention_factor = 1.0f;
  s.magnitude = c.number_or("rope_scaling_attn_factor", 1.0f);
  return s;
}

// Whether `rope_scaling` stands in the place of parameters that are the same for all layers, as in transformers where a file has
// both.
bool takes_older_form(Config& c) {
  if (!c.has("rope_scaling")) return false;
  const Config whole = c.sub("rope_parameters");
  for (const char* kind : {"full_attention", "sliding_attention"})
    if (whole.has(kind)) return false;
  const Config scaling = c.sub("rope_scaling");
  return scaling.has("rope_type") || scaling.has("type") || scaling.has("factor");
}

RopeScaling read_file(Config& c, const RopeOptions& options) {
  if (c.is_gguf()) return read_gguf(c, options.default_theta);
  if (c.has("rope_parameters")) {
    Config parameters = c.sub("rope_parameters");
    if (!options.layer_type.empty() && parameters.has(options.layer_type))
      parameters = parameters.sub(options.layer_type);
    if (!takes_older_form(c)) return read_keys(parameters, c, options.default_theta);
  }
  Config scaling = c.sub("rope_scaling");
  return read_keys(scaling, c, options.default_theta);
}

RopeScaling read_rope_scaling(Config& c, const RopeOptions& options) {
  RopeScaling s = read_file(c, options);
  if (options.theta > 0.0f) s.theta = options.theta;
  return s;
}

float yarn_mscale(float factor, float mscale) {
  return factor <= 1.0f ? 1.0f : 0.1f * mscale * std::log(factor) + 1.0f;
}

void scale_llama3(Rope& rope, const RopeScaling& s) {
  for (float& frequency : rope.inverse_frequency) {
    const float wavelength = 2.0f * std::numbers::pi_v<float> / frequency;
    if (wavelength < s.original / s.high) continue;
    if (wavelength > s.original / s.low) {
      frequency /= s.factor;
      continue;
    }
    const float smooth = (s.original / wavelength - s.low) / (s.high - s.low);
    frequency = (1.0f - smooth) * frequency / s.factor + smooth * frequency;
  }
}

void scale_yarn(Rope& rope, const RopeScaling& s, int dims) {
  const auto correction = [&](float rotations) {
    return static_cast<float>(dims) * std::log(s.original / (rotations * 2.0f * std::numbers::pi_v<float>)) /
           (2.0f * std::log(s.theta));
  };
  float low = correction(s.beta_fast), high = correction(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0f);
  high = std::min(high, static_cast<float>(dims - 1));
  if (low == high) high += 0.001f;
  for (size_t i = 0; i < rope.inverse_frequency.size(); ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - low) / (high - low), 0.0f, 1.0f);
    const float plain = rope.inverse_frequency[i];
    rope.inverse_frequency[i] = plain / s.factor * ramp + plain * (1.0f - ramp);
  }
  if (s.attention_factor > 0.0f) {
    rope.magnitude = s.attention_factor;
  } else if (s.mscale > 0.0f && s.mscale_all_dim > 0.0f) {
    rope.magnitude = yarn_mscale(s.factor, s.mscale) / yarn_mscale(s.factor, s.mscale_all_dim);
  } else {
    rope.magnitude = yarn_mscale(s.factor, 1.0f);
  }
}

// Two rows of factors, for sequences up to the original length and beyond it. Those of a GGUF file are tensors.
void scale_longrope(Config& c, Rope& rope, const RopeScaling& s) {
  rope.limit = static_cast<int>(std::min(s.original, 1e9f));
  rope.beyond = rope.inverse_frequency;
  const auto divide = [&](std::vector<float>& frequencies, const std::vector<double>& factors) {
    if (!c.is_gguf() && factors.size() != frequencies.size())
      return c.fail(fmt::format("longrope has {} factors for {} pairs", factors.size(), frequencies.size()));
    for (size_t i = 0; i < factors.size(); ++i) frequencies[i] /= static_cast<float>(factors[i]);
  };
  divide(rope.inverse_frequency, s.short_factor);
  divide(rope.beyond, s.long_factor);
  rope.magnitude = s.attention_factor > 0.0f ? s.attention_factor
                   : s.factor <= 1.0f        ? 1.0f
                                             : std::sqrt(1.0f + std::log(s.factor) / std::log(s.original));
  rope.magnitude_beyond = s.long_magnitude > 0.0f ? s.long_magnitude : rope.magnitude;
  if (s.short_magnitude > 0.0f) rope.magnitude = s.short_magnitude;
}

// Beyond the original length the base grows with the sequence.
void stretch_dynamic(Config& c, Rope& rope, const RopeScaling& s, int dims) {
  const int asked = c.size_or("serving_context", 0);
  const double made_for = static_cast<double>(s.original) * std::max(s.factor, 1.0f);
  rope.limit = static_cast<int>(std::min(s.original, 1e9f));
  const double rows = (asked > 0 ? asked : std::min(made_for, 1e9)) - rope.limit;
  if (rows > kMostRows && asked > 0)
    return c.fail(
        fmt::format("--ctx-size is {}, dynamic rope goes up to {} positions", asked, rope.limit + kMostRows));
  for (int row = 1; row <= std::min(rows, double{kMostRows}); ++row) {
    const double length = rope.limit + row;
    const double stretch = s.factor * length / s.original - (s.factor - 1.0);
    for (int i = 0; i < dims / 2; ++i)
      rope.beyond.push_back(rope.inverse_frequency[static_cast<size_t>(i)] *
                            static_cast<float>(std::pow(stretch, -2.0 * i / (dims - 2.0))));
  }
}

Rope scaled_rope(Config& c, const RopeScaling& s, const RopeOptions& options) {
  Rope rope;
  rope.style = options.style;
  rope.note = fmt::format("theta {:g}", s.theta);
  if (!(s.theta > 1.0f)) c.fail(fmt::format("'rope_theta' is {}, must be over 1", s.theta));
  if (!(s.factor > 0.0f) || !(s.original > 0.0f)) {
    c.fail(
        fmt::format("rope scaling factor {} and original context {} must be positive", s.factor, s.original));
    return rope;
  }
  if (options.dims < 2 || options.dims > 1024) {
    c.fail(fmt::format("{} rotary dimensions, must be 2 to 1024", options.dims));
    return rope;
  }
  double theta = s.theta;
  if (s.type == "dynamic" && s.alpha > 0.0f && options.dims > 2)
    theta *= std::pow(static_cast<double>(s.alpha), options.dims / (options.dims - 2.0));
  for (int i = 0; i < (options.dims + 1) / 2; ++i)
    rope.inverse_frequency.push_back(static_cast<float>(std::pow(theta, -2.0 * i / options.dims)));
  if (s.type != "default") rope.note += fmt::format(", {} x{:g}", s.type, s.factor);
  if (s.type == "linear") {
    for (float& frequency : rope.inverse_frequency) frequency /= s.factor;
  } else if (s.type == "proportional") {
    for (size_t i = 0; i < rope.inverse_frequency.size(); ++i) {
      const bool turns = static_cast<float>(i) < std::floor(s.part * static_cast<float>(options.dims / 2));
      rope.inverse_frequency[i] = turns ? rope.inverse_frequency[i] / s.factor : 0.0f;
    }
  } else if (s.type == "llama3") {
    scale_llama3(rope, s);
  } else if (s.type == "yarn") {
    scale_yarn(rope, s, options.dims);
  } else if (s.type == "longrope" || s.type == "su" ||
             (c.is_gguf() && c.stores("rope_factors_long.weight"))) {
    scale_longrope(c, rope, s);
  } else if (s.type == "dynamic") {
    if (s.alpha <= 0.0f && options.dims > 2) stretch_dynamic(c, rope, s, options.dims);
  } else if (s.type != "default" && s.type != "mrope") {
    // "mrope" equals the plain row for text, whose positions are the same in each section.
    c.fail(fmt::format("rope scaling '{}' is not known", s.type));
  }
  rope.sections = s.sections;
  rope.magnitude *= s.magnitude;
  rope.magnitude_beyond *= s.magnitude;
  return rope;
}

}  // namespace

Rope make_rope(Config& c, const RopeOptions& options) {
  return scaled_rope(c, read_rope_scaling(c, options), options);
}

Rope make_local_rope(Config& c, int dims) {
  const RopeOptions options{.dims = dims, .layer_type = "sliding_attention"};
  if (c.sub("rope_parameters").has(options.layer_type)) return make_rope(c, options);
  RopeScaling plain;
  plain.original = 1.0f;
  plain.theta = c.number_or("rope_local_base_freq", 10000.0f);
  return scaled_rope(c, plain, options);
}

// "dynamic" and "linear" multiply the length that a config.json gives, "yarn" the original one. Models with a rope of its
// own for window layers give the stretched length.
int stretched_context(Config& c, int context) {
  const RopeScaling s = read_rope_scaling(c, {});
  const bool counts_original = s.type == "yarn" && (!c.is_gguf() || c.has("rope_scaling_original"));
  const bool counts_context = !c.is_gguf() && !c.has("rope_local_base_freq") &&
                              (s.type == "linear" || (s.type == "dynamic" && s.alpha <= 0.0f));
  if (!counts_original && !counts_context) return context;
  const double stretched =
      static_cast<double>(counts_original ? s.original : static_cast<float>(context)) * s.factor;
  const double most = s.type == "dynamic" ? std::min<double>(1 << 24, context + kMostRows) : 1 << 24;
  return std::max(context, static_cast<int>(std::min(stretched, most)));
}

float yarn_logit_factor(Config& c) {
  const RopeScaling s = read_rope_scaling(c, {});
  if (s.type != "yarn" || s.mscale_all_dim <= 0.0f) return 1.0f;
  const float factor = yarn_mscale(s.factor, s.mscale_all_dim);
  return factor * factor;
}

}  // namespace sluice::models

#include "models/vision/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/family.h"

namespace sluice::models {

namespace {

struct VisionFamily {
  std::string_view architecture;  // of config.json
  VisionSpec (*build)(Config& config, Config& processor);
};

constexpr VisionFamily kVisionFamilies[] = {{"Gemma3ForConditionalGeneration", vision::build_gemma3},
                                            {"Idefics3ForConditionalGeneration", vision::build_idefics3},
                                            {"InternVLForConditionalGeneration", vision::build_internvl},
                                            {"LlavaForConditionalGeneration", vision::build_llava},
                                            {"Mistral3ForConditionalGeneration", vision::build_pixtral},
                                            {"Qwen2_5_VLForConditionalGeneration", vision::build_qwen2_5_vl},
                                            {"Qwen3VLForConditionalGeneration", vision::build_qwen3_vl},
                                            {"Qwen3VLMoeForConditionalGeneration", vision::build_qwen3_vl},
                                            {"Qwen3_5ForConditionalGeneration", vision::build_qwen3_vl},
                                            {"Qwen3_5MoeForConditionalGeneration", vision::build_qwen3_vl},
                                            {"SmolVLMForConditionalGeneration", vision::build_idefics3}};

constexpr int kLargestTile = 4096;  // pixels of a side

// Pixels of a side of what the tower reads at most; 0: of any shape.
int tile_side(const VisionSpec& spec) {
  if (const auto* tiled = std::get_if<TiledPicture>(&spec.picture)) return tiled->tile;
  if (const auto* square = std::get_if<SquarePicture>(&spec.picture)) return square->side;
  if (const auto* grid = std::get_if<GridPicture>(&spec.picture)) return grid->tile;
  return 0;
}

void check_vision(Config& config, const VisionSpec& spec) {
  const int tile = tile_side(spec), unit = spec.unit();
  if (spec.heads < 1 || spec.dim % spec.heads != 0 || (spec.rope.theta > 0 && spec.dim / spec.heads % 4 != 0))
    config.fail(fmt::format("{} heads cannot share {} numbers", spec.heads, spec.dim));
  if (unit < 1 || unit > kLargestTile ||
      (tile > 0 && (tile < unit || tile > kLargestTile || tile % unit != 0)))
    config.fail(fmt::format("tiles of {} pixels are no multiple of {} below {}", tile, unit, kLargestTile));
  if (spec.gated && spec.activation_scale != 1.0f)
    config.fail("'hidden_act' of the tower is 'quick_gelu', which gated feed-forwards do not have");
  if (spec.image_token_id < 0) config.fail("there is no token for pictures");
  if (static_cast<int>(spec.deep.size()) >= config.size("num_hidden_layers") && !spec.deep.empty())
    config.fail(fmt::format("{} layers add what the tower makes beside embeddings; the decoder needs more",
                            spec.deep.size()));
}

}  // namespace

std::vector<std::string_view> vision_architectures() {
  std::vector<std::string_view> names;
  for (const VisionFamily& family : kVisionFamilies) names.push_back(family.architecture);
  return names;
}

Result<std::optional<VisionSpec>> build_vision(Config& config, Config& processor) {
  for (const VisionFamily& family : kVisionFamilies) {
    if (family.architecture != config.architecture() || !config.has("vision_config")) continue;
    VisionSpec spec = family.build(config, processor);
    spec.family = family.architecture;
    check_vision(config, spec);
    if (Status status = config.status(); !status) return status.error();
    if (Status status = processor.status(); !status) return status.error();
    return std::optional<VisionSpec>(std::move(spec));
  }
  return std::optional<VisionSpec>();
}

namespace vision {

void read_activation(Config& tower, VisionSpec& spec, std::string_view fallback) {
  if (tower.text_or("hidden_act", std::string(fallback)) == "quick_gelu") {
    spec.activation = Activation::Silu;
    spec.activation_scale = 1.702f;
  } else {
    spec.activation = activation(tower, std::string(fallback));
  }
}

namespace {

// Pixels are divided by 255 and normed by mean and deviation; a processor that says otherwise changes those two.
void fold_rescaling(Config& processor, VisionSpec& spec) {
  if (!processor.flag_or("do_normalize", true)) {
    spec.mean.fill(0.0f);
    spec.deviation.fill(1.0f);
  }
  constexpr float kUsual = 1.0f / 255.0f;
  const float factor =
      processor.flag_or("do_rescale", true) ? processor.number_or("rescale_factor", kUsual) : 1.0f;
  if (!(factor > 0.0f)) return processor.fail(fmt::format("'rescale_factor' is {}, must be above 0", factor));
  if (std::abs(factor / kUsual - 1.0f) < 1e-6f) return;
  for (size_t i = 0; i < spec.mean.size(); ++i) {
    spec.mean[i] *= kUsual / factor;
    spec.deviation[i] *= kUsual / factor;
  }
}

}  // namespace

VisionSpec plain_encoder(Config& config, Config& processor) {
  Config tower = config.sub("vision_config");
  VisionSpec spec;
  const auto first = [&](std::string_view key) {  // a number, or one for each edge
    const std::vector<double> values = tower.numbers(key);
    return values.empty() || values[0] < 0 || values[0] > kLargestTile ? 0 : static_cast<int>(values[0]);
  };
  spec.patch = first("patch_size");
  spec.grid = first("image_size") / std::max(1, spec.patch);
  spec.dim = tower.size("hidden_size");
  spec.heads = tower.size_or("num_attention_heads", tower.size_or("num_heads", 0));
  spec.inner = tower.size("intermediate_size");
  spec.layers = tower.size_or("num_hidden_layers", tower.size_or("depth", 0));
  spec.norm_eps = tower.number_or("layer_norm_eps", 1e-6f);
  read_activation(tower, spec, "gelu_pytorch_tanh");
  spec.output_dim = config.size("hidden_size");
  const auto take = [&](std::string_view key, std::array<float, 3>& to) {
    const std::vector<double> values = processor.numbers(key);
    for (size_t i = 0; i < to.size() && i < values.size(); ++i) to[i] = static_cast<float>(values[i]);
  };
  take("image_mean", spec.mean);
  take("image_std", spec.deviation);
  fold_rescaling(processor, spec);
  for (const float value : spec.deviation)
    if (!(value > 0) || !std::isfinite(value)) config.fail("'image_std' must be above 0");
  spec.projector_activation = activation(config, "gelu", "projector_hidden_act");
  const int resample = processor.size_or("resample", 3);
  if (resample < 1 || resample > 3)
    processor.fail(fmt::format("'resample' is {}, must be 1, 2 or 3", resample));
  spec.filter = resample == 1   ? image::Filter::Lanczos
                : resample == 2 ? image::Filter::Bilinear
                                : image::Filter::Bicubic;
  return spec;
}

}  // namespace vision

}  // namespace sluice::models

#include "models/vision/mmproj.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "formats/quote.h"

namespace sluice::models {

namespace {

using formats::GgufMetadata;

constexpr int64_t kMostSize = 1 << 24, kMostLayers = 1024;

// Projector types, and what their models are called in config.json.
struct ProjectorType {
  std::string_view type, architecture;
  std::string_view
      stand_in;  // a token of the vocabulary that no text has, where files leave out the picture token
};
constexpr ProjectorType kProjectorTypes[] = {
    {"gemma3", "Gemma3ForConditionalGeneration", "<unused0>"},
    {"idefics3", "Idefics3ForConditionalGeneration", ""},
    {"internvl", "InternVLForConditionalGeneration", ""},
    {"mlp", "LlavaForConditionalGeneration", "<unk>"},
    {"pixtral", "Mistral3ForConditionalGeneration", ""},
    {"qwen2.5vl_merger", "Qwen2_5_VLForConditionalGeneration", ""},
    {"qwen3vl_merger", "Qwen3VLForConditionalGeneration", ""},
};

// Keys of the file. Keeps the first problem and goes on with 0.
class Keys {
 public:
  explicit Keys(const GgufMetadata& metadata) : metadata_(metadata) {}

  bool has(std::string_view key) const { return metadata_.contains(key); }
  // From 1 on where the file must have it.
  int64_t size(std::string_view key, int64_t fallback = -1) {
    const auto value = metadata_.get_int(key);
    if (!value) return fail(value.error());
    const int64_t least = fallback < 0 ? 1 : 0, found = value->value_or(fallback);
    if (found >= least && found <= kMostSize) return found;
    return fail({ErrorCode::Corrupt,
                 *value ? fmt::format("'{}' is {}; {} to {} is possible", key, found, least, kMostSize)
                        : fmt::format("there is no '{}'", key)});
  }
  double number(std::string_view key, double fallback) {
    const auto value = metadata_.get_number(key);
    if (!value) return static_cast<double>(fail(value.error()));
    return value->value_or(fallback);
  }
  bool flag(std::string_view key) {
    const auto value = metadata_.get_bool(key);
    return value ? value->value_or(false) : fail(value.error()) != 0;
  }
  std::string text(std::string_view key) {
    const auto value = metadata_.get_string(key);
    if (!value) fail(value.error());
    return value ? std::string(value->value_or("")) : "";
  }
  json::array numbers(std::string_view key) {
    json::array out;
    const auto values = metadata_.get_numbers(key);
    if (!values) fail(values.error());
    if (values && *values != nullptr)
      for (const double value : **values) out.emplace_back(value);
    return out;
  }
  // Places of those that are true.
  json::array marked(std::string_view key) {
    json::array out;
    const auto values = metadata_.get_ints(key);
    if (!values) fail(values.error());
    if (!values || *values == nullptr) return out;
    for (size_t i = 0; i < (*values)->size(); ++i)
      if ((**values)[i] != 0) out.emplace_back(i);
    return out;
  }
  const Status& status() const { return status_; }

 private:
  int64_t fail(Error error) {
    if (status_.ok()) status_ = std::move(error);
    return 0;
  }

  const GgufMetadata& metadata_;
  Status status_;
};

std::string_view activation_name(Keys& keys) {
  if (keys.flag("clip.use_silu")) return "silu";
  return keys.flag("clip.use_gelu") ? "gelu" : "quick_gelu";
}

// The tower as config.json has it.
json::object vision_config(Keys& keys, std::string_view type) {
  const int64_t layers = keys.size("clip.vision.block_count");
  const int64_t patch = std::max<int64_t>(1, keys.size("clip.vision.patch_size"));  // 1 behind an error
  const int64_t image = keys.size("clip.vision.image_size");
  json::object tower{{"hidden_size", keys.size("clip.vision.embedding_length")},
                     {"intermediate_size", keys.size("clip.vision.feed_forward_length")},
                     {"num_hidden_layers", type == "mlp" ? layers + 1 : layers},
                     {"num_attention_heads", keys.size("clip.vision.attention.head_count")},
                     {"patch_size", patch},
                     {"image_size", image},
                     {"layer_norm_eps", keys.number("clip.vision.attention.layer_norm_epsilon", 1e-6)}};
  // SigLIP's GELU is the approximate one in every file that says "gelu" of it.
  const std::string_view activation = activation_name(keys);
  const bool siglip = type == "gemma3" || type == "idefics3" || type == "qwen3vl_merger";
  tower["hidden_act"] = siglip && activation == "gelu" ? "gelu_pytorch_tanh" : activation;
  tower["spatial_merge_size"] = keys.size("clip.vision.spatial_merge_size", 2);
  if (type == "qwen3vl_merger") {
    tower["num_position_embeddings"] = image / patch * (image / patch);
    tower["deepstack_visual_indexes"] = keys.marked("clip.vision.is_deepstack_layers");
  }
  if (type == "qwen2.5vl_merger") {
    const int64_t every = keys.size("clip.vision.n_wa_pattern", 8);
    json::array full;
    for (int64_t layer = every; every > 0 && layer <= std::min(layers, kMostLayers); layer += every)
      full.emplace_back(layer - 1);
    tower["fullatt_block_indexes"] = std::move(full);
    tower["window_size"] = keys.size("clip.vision.window_size", 112);
  }
  return tower;
}

// What the decoder's config.json says of pictures.
json::object model_config(Keys& keys, const ProjectorType& how, const MmprojDecoder& decoder) {
  json::object config{{"architectures", json::array{json::string(how.architecture)}},
                      {"hidden_size", keys.size("clip.vision.projection_dim")},
                      {"num_hidden_layers", decoder.layers},
                      {"vision_config", vision_config(keys, how.type)}};
  if (how.type == "gemma3") {
    const int64_t scale = std::max<int64_t>(1, keys.size("clip.vision.projector.scale_factor", 4));
    const int64_t side = keys.size("clip.vision.image_size") /
                         std::max<int64_t>(1, keys.size("clip.vision.patch_size")) / scale;
    config["mm_tokens_per_image"] = side * side;
  }
  if (how.type == "idefics3") config["scale_factor"] = keys.size("clip.vision.projector.scale_factor", 2);
  if (how.type == "internvl")
    config["downsample_ratio"] =
        1.0 / static_cast<double>(std::max<int64_t>(1, keys.size("clip.vision.projector.scale_factor", 2)));
  if (how.type == "pixtral") config["spatial_merge_size"] = keys.size("clip.vision.spatial_merge_size", 1);
  return config;
}

json::object processor_config(Keys& keys, std::string_view type) {
  json::object processor{{"architectures", json::array{"ImageProcessor"}},
                         {"image_mean", keys.numbers("clip.vision.image_mean")},
                         {"image_std", keys.numbers("clip.vision.image_std")}};
  const int64_t image = keys.size("clip.vision.image_size");
  const int64_t edge = keys.size("clip.vision.preproc_image_size", 0);
  if (type == "idefics3") {
    processor["max_image_size"] = json::object{{"longest_edge", image}};
    if (edge > 0) processor["size"] = json::object{{"longest_edge", edge}};
  }
  if (type == "internvl") {
    processor["min_patches"] = keys.size("clip.vision.preproc_min_tiles", 1);
    processor["max_patches"] = keys.size("clip.vision.preproc_max_tiles", 12);
  }
  if (type == "pixtral") processor["size"] = json::object{{"longest_edge", edge > 0 ? edge : image}};
  if (type.starts_with("qwen")) {
    if (keys.has("clip.vision.image_min_pixels"))
      processor["min_pixels"] = keys.size("clip.vision.image_min_pixels");
    if (keys.has("clip.vision.image_max_pixels"))
      processor["max_pixels"] = keys.size("clip.vision.image_max_pixels");
  }
  return processor;
}

void use_gguf_names(const formats::TensorStore& tensors, VisionSpec& spec) {
  const bool one_matrix = tensors.contains("v.blk.0.attn_qkv.weight");
  TowerNames names{.patches = "patch_embd",
                   .positions = "position_embd.weight",
                   .class_token = "class_embd",
                   .input_norm = "pre_ln",
                   .output_norm = "post_ln",
                   .layer = "blk.{}.",
                   .attention_norm = "ln1",
                   .ffn_norm = "ln2",
                   .qkv = {"attn_q", "attn_k", "attn_v"},
                   .q_norm = spec.names.q_norm.empty() ? "" : "attn_q_norm.weight",
                   .k_norm = spec.names.k_norm.empty() ? "" : "attn_k_norm.weight",
                   .out = "attn_out",
                   .up = {"ffn_up"},
                   .down = "ffn_down",
                   .attention_scale = spec.names.attention_scale.empty() ? "" : "ls1.weight",
                   .ffn_scale = spec.names.ffn_scale.empty() ? "" : "ls2.weight"};
  if (one_matrix) names.qkv = {"attn_qkv"};
  if (spec.gated) names.up = {"ffn_gate", "ffn_up"};
  // Files of LLaVA's first converter have the two the other way round.
  const Result<TensorView> down = tensors.find("v.blk.0.ffn_down.weight");
  if (!spec.gated && down && down->rank == 2 && down->dim(0) == spec.inner && spec.inner != spec.dim)
    std::swap(names.up.front(), names.down);
  spec.names = names;
  spec.prefixes = {"v."};
}

// Stems of the projector's matrices and norms, in the order in which its steps use them.
std::vector<std::string> projector_stems(std::string_view type) {
  if (type == "gemma3") return {"mm.soft_emb_norm", "mm.input_projection"};
  if (type == "idefics3") return {"mm.model.fc"};
  if (type == "internvl") return {"mm.model.mlp.0", "mm.model.mlp.1", "mm.model.mlp.3"};
  if (type == "mlp") return {"mm.0", "mm.2"};
  if (type == "pixtral") return {"mm.input_norm", "mm.patch_merger", "mm.1", "mm.2"};
  return {"v.post_ln", "mm.0", "mm.2"};  // Qwen
}

void rename(Projector& projector, const std::vector<std::string>& stems) {
  size_t next = stems.size();
  // From the end: what a family leaves out is in front.
  for (auto step = projector.rbegin(); step != projector.rend(); ++step) {
    if (auto* norm = std::get_if<ProjectorNorm>(&*step)) {
      norm->stem = stems[--next];
      norm->plus_one = false;  // the file has the sums
    }
    if (auto* matrix = std::get_if<ProjectorMatrix>(&*step)) matrix->stem = stems[--next];
  }
}

Result<Token> picture_token(const VisionSpec& spec, const ProjectorType& how, const GgufMetadata& decoder) {
  const auto tokens = decoder.get_strings("tokenizer.ggml.tokens");
  if (!tokens) return tokens.error();
  for (const std::string_view wanted : {std::string_view(spec.image_token), how.stand_in}) {
    if (*tokens == nullptr || wanted.empty()) continue;
    const auto found = std::find((*tokens)->begin(), (*tokens)->end(), wanted);
    if (found != (*tokens)->end()) return static_cast<Token>(found - (*tokens)->begin());
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("the decoder's vocabulary has no token '{}' for pictures", spec.image_token)};
}

}  // namespace

Result<VisionSpec> read_mmproj(const formats::Gguf& tower, const std::string& what,
                               const MmprojDecoder& decoder) {
  Keys keys(tower.metadata);
  std::string type = keys.text("clip.projector_type");
  if (type.empty()) type = keys.text("clip.vision.projector_type");
  const auto* how = std::find_if(std::begin(kProjectorTypes), std::end(kProjectorTypes),
                                 [&](const ProjectorType& known) { return known.type == type; });
  if (how == std::end(kProjectorTypes))
    return Error{ErrorCode::Unsupported, fmt::format("{}: towers of the projector type {} are not known",
                                                     what, formats::quote(type))};
  json::object object = model_config(keys, *how, decoder);
  object["image_token_id"] = 0;  // until the vocabulary is asked for it
  json::object pictures = processor_config(keys, type);
  if (!keys.status().ok()) return formats::about_file(what, keys.status().error());
  // Pixtral has Mistral 3's projector but for its first steps.
  if (type == "pixtral" && !tower.tensors.contains("mm.patch_merger.weight")) {
    object["architectures"] = json::array{"LlavaForConditionalGeneration"};
    object["vision_config"].get_object()["model_type"] = "pixtral";
  }
  Result<Config> config = Config::from_json(std::move(object), what);
  if (!config) return config.error();
  Result<Config> processor = Config::from_json(std::move(pictures), what);
  if (!processor) return processor.error();
  Result<std::optional<VisionSpec>> built = build_vision(*config, *processor);
  if (!built) return built.error();
  VisionSpec spec = **std::move(built);
  if (spec.output_dim != decoder.dim)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: the tower makes embeddings of {} numbers; the decoder takes {}", what,
                             spec.output_dim, decoder.dim)};
  const Result<Token> token = picture_token(spec, *how, decoder.metadata);
  if (!token) return formats::about_file(what, token.error());
  spec.image_token_id = *token;
  spec.image_token =
      std::string((**decoder.metadata.get_strings("tokenizer.ggml.tokens"))[static_cast<size_t>(*token)]);
  spec.rotated_pairs = type == "pixtral";
  use_gguf_names(tower.tensors, spec);
  rename(spec.projector, projector_stems(type));
  for (DeepProjector& deep : spec.deep) {
    const std::string stem = fmt::format("v.deepstack.{}.", deep.layer);
    rename(deep.projector, {stem + "norm", stem + "fc1", stem + "fc2"});
  }
  return spec;
}

Result<Mmproj> open_mmproj(const std::string& path, const MmprojDecoder& decoder) {
  Result<formats::Gguf> gguf = formats::open_gguf(path);
  if (!gguf) return gguf.error();
  Result<VisionSpec> spec = read_mmproj(*gguf, path, decoder);
  if (!spec) return spec.error();
  return Mmproj{std::move(*spec), std::move(gguf->tensors)};
}

std::string find_mmproj(const std::string& decoder_path) {
  std::error_code none;
  std::string found;
  const std::filesystem::path folder = std::filesystem::path(decoder_path).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder.empty() ? "." : folder, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("mmproj") || !name.ends_with(".gguf")) continue;
    if (!found.empty()) return "";
    found = entry.path().string();
  }
  return found;
}

}  // namespace sluice::models

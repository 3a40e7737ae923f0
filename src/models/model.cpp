#include "models/model.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>

#include "base/log.h"
#include "formats/mapped_pages.h"
#include "formats/quote.h"
#include "formats/safetensors/safetensors.h"
#include "kernels/chosen_attention.h"
#include "kernels/part_sums.h"
#include "kernels/partial_attention.h"
#include "models/family.h"
#include "models/group/layer_cut.h"
#include "models/loading/binder.h"
#include "models/loading/config/config.h"
#include "models/loading/locate.h"
#include "models/outline.h"
#include "models/quantized/quantized_matrix.h"
#include "models/vision/mmproj.h"

namespace sluice::models {

namespace {

// The tensor of a slot that is stored plainly, as ".weight"; nothing where there is none.
std::optional<TensorView> plain_tensor(const ModelSpec& spec, const formats::TensorStore& tensors,
                                       WeightSlot slot) {
  for (const NameRow& row : spec.names.rows(slot))
    if (const auto name = locate_tensor(tensors, std::string(row.stem), ".weight")) {
      const Result<TensorView> view = tensors.find(*name);
      return view ? std::optional(*view) : std::nullopt;
    }
  return std::nullopt;
}

bool holds_same(const std::optional<TensorView>& a, const std::optional<TensorView>& b) {
  return a && b && a->dtype == b->dtype && a->describe() == b->describe() &&
         std::memcmp(a->data, b->data, static_cast<size_t>(a->bytes())) == 0;
}

// Whatever their config says, files without an output matrix use the embedding, and those with one that differs from the
// embedding use that.
void settle_output(ModelSpec& spec, const formats::TensorStore& tensors) {
  const std::vector<NameRow> rows = spec.names.rows(WeightSlot::Output);
  const bool stored = std::any_of(rows.begin(), rows.end(), [&](const NameRow& row) {
    return has_matrix(tensors, std::string(row.stem));
  });
  if (stored && spec.tied_output)
    spec.tied_output = holds_same(plain_tensor(spec, tensors, WeightSlot::Output),
                                  plain_tensor(spec, tensors, WeightSlot::TokenEmbedding));
  else if (!stored)
    spec.tied_output = true;
}

// A tower that lies beside the model is no reason to refuse it; one that was asked for is.
Status add_mmproj(ModelFiles& files, const OpenOptions& options) {
  const std::string path = options.mmproj.empty() ? find_mmproj(files.path) : options.mmproj;
  if (path.empty() || path == files.path) return {};
  Result<Mmproj> tower = open_mmproj(path, {.metadata = files.metadata,
                                            .layers = static_cast<int>(files.spec.layers.size()),
                                            .dim = files.spec.dim});
  Status status = tower ? files.tensors.merge(std::move(tower->tensors)) : tower.error();
  if (status.ok()) {
    files.vision = std::move(tower->spec);
  } else if (options.mmproj.empty()) {
    log_warning("pictures cannot be read: {}", status.error().message);
    return {};
  }
  return status;
}

// As Config::stored_rows.
int64_t stored_rows(const formats::TensorStore& store, std::string_view name) {
  if (!store.contains(name)) return -1;
  const Result<TensorView> tensor = store.find(name);
  return tensor && tensor->rank > 0 ? tensor->dim(0) : 0;
}

Result<ModelFiles> open_gguf_model(const std::string& path, const OpenOptions& options) {
  Result<formats::Gguf> gguf = formats::open_gguf(path);
  if (!gguf) return gguf.error();
  Result<Config> config = Config::from_gguf(gguf->metadata, path);
  if (!config) return config.error();
  config->assume("serving_context", options.serving_context);
  config->set_tensors([&](std::string_view name) { return stored_rows(gguf->tensors, name); });
  Result<ModelSpec> spec = build_spec(*config);
  if (!spec) return formats::about_file(path, spec.error());
  settle_output(*spec, gguf->tensors);
  ModelFiles files{path, std::move(*spec), std::move(gguf->tensors), std::move(gguf->metadata), true};
  if (Status status = add_mmproj(files, options); !status) return status.error();
  return files;
}

// Files beside config.json that say how the weights are quantised, and whose method the name tells where they do not.
struct QuantizationFile {
  const char* name;
  Result<Quantization> (*read)(const json::object&);
};

constexpr QuantizationFile kQuantizationFiles[] = {
    {"hf_quant_config.json", read_modelopt},
    {"quantize_config.json", [](const json::object& file) { return read_quantization_file(file, "gptq"); }},
    {"quant_config.json", [](const json::object& file) { return read_quantization_file(file, "awq"); }},
};

// Of config.json, whose decoder may lie one level down, or of a file beside it.
Result<Quantization> quantization_of(const std::string& folder, const json::object& config) {
  Result<Quantization> own = read_quantization(config);
  if (!own || own->method != Quantization::Method::None) return own;
  if (const json::value* text = config.if_contains("text_config"); text != nullptr && text->is_object()) {
    own = read_quantization(text->get_object());
    if (!own || own->method != Quantization::Method::None) return own;
  }
  for (const QuantizationFile& file : kQuantizationFiles) {
    const std::string path = folder + "/" + file.name;
    const Result<std::string> text = read_small_file(path);
    if (!text) continue;  // there is none
    const Result<json::value> value = parse_json(*text, path);
    if (!value) return value.error();
    if (!value->is_object()) return Error{ErrorCode::Corrupt, path + ": not an object"};
    Result<Quantization> beside = file.read(value->get_object());
    if (!beside) return formats::about_file(path, beside.error());
    if (beside->method != Quantization::Method::None) return beside;
  }
  return own;
}

Result<json::object> read_config_object(const std::string& config_path, const OpenOptions& options) {
  Result<json::object> object = read_config_file(config_path);
  if (object) (*object)["serving_context"] = options.serving_context;
  return object;
}

Result<Config> read_config(const std::string& config_path, const OpenOptions& options) {
  Result<json::object> object = read_config_object(config_path, options);
  if (!object) return object.error();
  return Config::from_json(std::move(*object), config_path);
}

// The tower of a folder, with what its processor's file says of pictures. A tower that cannot be read is no reason to refuse
// the decoder.
std::optional<VisionSpec> find_vision(const std::string& folder) {
  Result<Config> config = read_config(folder + "/config.json", {});
  if (!config || !config->has("vision_config")) return std::nullopt;
  json::object processor;
  for (const char* name : {"/preprocessor_config.json", "/processor_config.json"}) {
    const Result<std::string> text = read_small_file(folder + name);
    if (!text) continue;
    Result<json::value> value = parse_json(*text, folder + name);
    json::object* object = value && value->is_object() ? &value->get_object() : nullptr;
    if (object == nullptr) continue;
    const json::value* inner = object->if_contains("image_processor");
    processor = inner != nullptr && inner->is_object() ? inner->get_object() : *object;
    break;
  }
  processor["architectures"] = json::array{"ImageProcessor"};
  Result<Config> pictures = Config::from_json(std::move(processor), folder + "/preprocessor_config.json");
  if (!pictures) return std::nullopt;
  Result<std::optional<VisionSpec>> spec = build_vision(*config, *pictures);
  if (spec) return std::move(*spec);
  log_warning("pictures cannot be read: {}", spec.error().message);
  return std::nullopt;
}

Result<ModelFiles> open_folder(const std::string& path, const OpenOptions& options) {
  const std::string config_path = path + "/config.json";
  Result<json::object> object = read_config_object(config_path, options);
  if (!object) return object.error();
  Result<Quantization> quantization = quantization_of(path, *object);
  if (!quantization) return formats::about_file(config_path, quantization.error());
  Result<Config> config = Config::from_json(std::move(*object), config_path);
  if (!config) return config.error();
  Result<formats::Safetensors> tensors = formats::open_safetensors(path);
  if (!tensors) return tensors.error();
  config->set_tensors([&](std::string_view name) { return stored_rows(tensors->tensors, name); });
  Result<ModelSpec> spec = build_spec(*config);
  if (!spec) return spec.error();
  spec->quantization = std::move(*quantization);
  settle_output(*spec, tensors->tensors);
  std::optional<VisionSpec> vision = find_vision(path);
  return ModelFiles{path, std::move(*spec), std::move(tensors->tensors), {}, false, std::move(vision)};
}

}  // namespace

Result<ModelFiles> open_model(const std::string& path, const OpenOptions& options) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    return Error{ErrorCode::NotFound, fmt::format("model '{}' does not exist", path)};
  if (!S_ISDIR(status.st_mode)) return open_gguf_model(path, options);
  if (!options.mmproj.empty())
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("--mmproj {} is for a model in a GGUF file; '{}' is a folder, which has its own tower",
                    options.mmproj, path)};
  return open_folder(path, options);
}

Result<ModelFiles> open_outline(const std::string& path) {
  const std::filesystem::path place(path);
  std::error_code none;
  const bool is_config = place.extension() == ".json";
  if (!is_config && !std::filesystem::is_directory(place, none)) return open_model(path);
  const std::string folder = is_config ? place.parent_path().string() : path;
  const auto holds_weights = [](const std::filesystem::directory_entry& entry) {
    return entry.path().extension() == ".safetensors";
  };
  const std::filesystem::directory_iterator entries(folder.empty() ? "." : folder, none);
  if (!is_config && !none && std::any_of(begin(entries), end(entries), holds_weights))
    return open_model(path);
  Result<Config> config = read_config(is_config ? path : path + "/config.json", {});
  if (!config) return config.error();
  Result<ModelSpec> spec = build_spec(*config);
  if (!spec) return formats::about_file(path, spec.error());
  return ModelFiles{path, std::move(*spec), {}, {}, false};
}

namespace {

// `part`: what a rank computes of the model.
Status check_norms(const ModelSpec& part, const ModelSpec& spec, const Placement& placement,
                   kernels::Backend& backend) {
  if (placement.tensor.whole() || dynamic_cast<kernels::PartSums*>(&backend) != nullptr) return {};
  const auto found = std::find_if(part.layers.begin(), part.layers.end(), norms_over_ranks);
  if (found == part.layers.end()) return {};
  return Error{ErrorCode::Unsupported,
               fmt::format("layer {} norms rows that {} ranks (--tp) share, which '{}' does not compute; "
                           "--device cpu does",
                           placement.layers(spec).begin + (found - part.layers.begin()),
                           placement.tensor.size, backend.name())};
}

void bind_tower(Model& model) {
  if (!model.files.vision) return;
  Result<VisionWeights> tower = Error{ErrorCode::Unsupported, "several ranks compute the model"};
  if (!model.group) tower = bind_vision(*model.files.vision, model.files.tensors, *model.backend);
  if (tower) {
    model.vision = std::move(*tower);
  } else {
    model.no_vision = tower.error().message;
    log_warning("pictures cannot be read: {}", model.no_vision);
  }
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(ModelFiles files, std::shared_ptr<kernels::Backend> backend,
                                          Progress progress, std::shared_ptr<ModelGroup> group) {
  auto model = std::make_unique<Model>();
  model->files = std::move(files);
  model->backend = std::move(backend);
  model->group = std::move(group);
  if (dynamic_cast<kernels::ChosenAttention*>(model->backend.get()) == nullptr)
    drop_indexers(model->files.spec);
  Placement placement = model->group ? model->group->placement() : Placement();
  placement.on_host = model->backend->async_device() == nullptr;
  const Result<ModelSpec> part = cut(model->files.spec, placement);
  if (!part) return formats::about_file(model->files.path, part.error());
  if (Status status = check_norms(*part, model->files.spec, placement, *model->backend); !status)
    return formats::about_file(model->files.path, status.error());
  if (!placement.context.whole() && dynamic_cast<kernels::PartialAttention*>(model->backend.get()) == nullptr)
    return Error{
        ErrorCode::Unsupported,
        fmt::format("'{}' does not merge attention over parts of the keys, which {} ranks (--cp) need",
                    model->backend->name(), placement.context.size)};
  if (model->group)
    if (Status joined = model->group->use(model->backend); !joined) return joined.error();
  // A device says that its memory has run out by throwing.
  Result<ModelWeights> weights = [&]() -> Result<ModelWeights> {
    try {
      return bind_weights(model->files.spec, placement, model->files.tensors, *model->backend, progress);
    } catch (const std::exception& problem) {
      return Error{ErrorCode::Unavailable, fmt::format("cannot place the weights: {}", problem.what())};
    }
  }();
  if (!weights) return formats::about_file(model->files.path, weights.error());
  model->weights = std::move(*weights);
  // Only now are the frequencies those of the file.
  if (model->group) model->part = cut(model->files.spec, placement).value();
  bind_tower(*model);
  // What was read for a copy, and of the parts that other ranks have, does not stay; what is used in place comes back.
  if (model->group) formats::release_pages(model->files.tensors);
  return model;
}

}  // namespace sluice::models

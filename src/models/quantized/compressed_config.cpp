#include <fmt/format.h>

#include <algorithm>

#include "models/quantized/method_configs.h"

namespace sluice::models {

namespace {

using Format = QuantGroup::Format;

struct NamedFormat {
  std::string_view name;
  std::optional<Format> format;  // nothing: told by a module's tensors
};

constexpr NamedFormat kFormats[] = {
    {"", {}},
    {"dense", {}},
    {"mixed-precision", {}},
    {"naive-quantized", {}},
    {"pack-quantized", Format::Packed},
    {"int-quantized", Format::Int},
    {"float-quantized", Format::Float},
    {"mxfp8-quantized", Format::Float},
    {"nvfp4-pack-quantized", Format::Nvfp4},
    {"mxfp4-pack-quantized", Format::Mxfp4},
};

// Whether the columns are ordered by their activations, so that weight_g_idx must be there.
bool read_order(ConfigReader& reader) {
  const json::value* value = reader.find("actorder");
  if (value == nullptr) return false;
  if (value->is_bool()) return value->get_bool();
  const std::string order = reader.word("actorder", "", {"group", "dynamic", "weight", "static"});
  return order == "group" || order == "dynamic";
}

// What shares a scale; also checks the sizes that belong to the strategy.
ScaleTile read_tile(ConfigReader& reader, const std::string& strategy, int group_size) {
  const auto [rows, cols] = reader.block("block_structure");
  if (strategy == "block") {
    if (rows == 0) reader.fail("'strategy' is 'block', but 'block_structure' is not two sizes");
    return {rows, cols, fmt::format("'block_structure' is [{}, {}]", rows, cols)};
  }
  const bool grouped = strategy == "group" || strategy == "tensor_group";
  if (grouped && group_size == 0)
    reader.fail(fmt::format("'strategy' is '{}', but 'group_size' is not a size", strategy));
  if ((strategy == "channel" || strategy == "tensor") && group_size > 0)
    reader.fail(fmt::format("'strategy' is '{}', but 'group_size' is {}", strategy, group_size));
  if (group_size > 0) return {1, group_size, fmt::format("'group_size' is {}", group_size)};
  const std::string said = fmt::format("'strategy' is '{}'", strategy);
  if (strategy == "channel") return {1, ScaleTile::kWhole, said};
  if (strategy == "tensor") return {ScaleTile::kWhole, ScaleTile::kWhole, said};
  return {};
}

// Sizes and kinds that a format has by its definition.
void check_format(ConfigReader& reader, const QuantGroup& group, const std::string& name, bool floats,
                  bool blocks) {
  if (!group.format) return;
  const auto must = [&](std::string_view key, const auto& value, const auto& wanted) {
    if (value != wanted) reader.fail(fmt::format("'{}' is {}, must be {} in {}", key, value, wanted, name));
  };
  const bool integers = *group.format == Format::Packed || *group.format == Format::Int;
  must("type", std::string_view(floats ? "float" : "int"), std::string_view(integers ? "int" : "float"));
  if (blocks && *group.format != Format::Float)
    reader.fail(fmt::format("'strategy' is 'block', which {} has not", name));
  if (*group.format == Format::Float) must("num_bits", group.bits, 8);
  if (*group.format != Format::Nvfp4 && *group.format != Format::Mxfp4) return;
  must("num_bits", group.bits, 4);
  must("symmetric", group.symmetric, true);
  const int size = *group.format == Format::Nvfp4 ? 16 : 32;
  if (group.group_size != 0) must("group_size", group.group_size, size);
}

// One entry of config_groups; nothing where it says nothing of weights.
std::optional<QuantGroup> read_group(ConfigReader& all, const std::string& name, const json::value& value,
                                     const std::string& format) {
  const auto failed = [&](const std::string& message) {
    all.fail(fmt::format("group '{}': {}", name, message));
    return std::nullopt;
  };
  if (!value.is_object()) return failed(fmt::format("is {}, must be an object", shown(value)));
  ConfigReader outer(value.get_object());
  QuantGroup group;
  group.targets = outer.targets("targets");
  const std::string own = outer.text("format", format);
  if (!outer.problem().empty()) return failed(outer.problem());
  const json::value* weights = outer.find("weights");
  if (weights == nullptr) return std::nullopt;
  if (!weights->is_object())
    return failed(fmt::format("'weights' is {}, must be an object", shown(*weights)));
  const auto* known = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](const NamedFormat& one) { return one.name == own; });
  if (known == std::end(kFormats)) return failed(fmt::format("'format' is '{}', which is not known", own));
  group.format = known->format;

  ConfigReader reader(weights->get_object());
  const bool floats = reader.word("type", "int", {"int", "float"}) == "float";
  group.bits = floats ? reader.bits("num_bits", {4, 8}) : reader.bits("num_bits", {1, 2, 3, 4, 5, 6, 7, 8});
  group.symmetric = reader.flag("symmetric", true);
  const std::string strategy =
      reader.word("strategy", "", {"", "tensor", "channel", "group", "tensor_group", "block"});
  group.group_size = reader.group_size();
  group.ordered = read_order(reader);
  group.tile = read_tile(reader, strategy, group.group_size);
  check_format(reader, group, own, floats, strategy == "block");
  if (!reader.problem().empty()) return failed(reader.problem());
  return group;
}

// What changes weights in ways that are not undone here.
void refuse_changed_weights(ConfigReader& reader) {
  if (const json::value* sparsity = reader.find("sparsity_config"); sparsity != nullptr) {
    if (!sparsity->is_object())
      return reader.fail(fmt::format("'sparsity_config' is {}, must be an object", shown(*sparsity)));
    ConfigReader inner(sparsity->get_object());
    const std::string format = inner.text("format", "dense");
    if (format != "dense")
      reader.fail(fmt::format("'sparsity_config': 'format' is '{}', must be 'dense'", format));
  }
  const json::value* transforms = reader.find("transform_config");
  if (transforms == nullptr) return;
  const json::object* object = transforms->if_object();
  const json::value* groups = object == nullptr ? nullptr : object->if_contains("config_groups");
  const bool empty = object != nullptr && (groups == nullptr || groups->is_null() ||
                                           (groups->is_object() && groups->get_object().empty()));
  if (!empty) reader.fail(fmt::format("'transform_config' is {}, must be empty", shown(*transforms)));
}

}  // namespace

void read_compressed_config(ConfigReader& reader, Quantization& out) {
  out.method = Quantization::Method::CompressedTensors;
  if (const json::value* inner = reader.find("quantization_config");
      inner != nullptr && inner->is_object() && reader.find("config_groups") == nullptr) {
    refuse_changed_weights(reader);
    ConfigReader nested(inner->get_object());
    read_compressed_config(nested, out);
    if (!nested.problem().empty()) reader.fail(nested.problem());
    return;
  }
  out.ignore = reader.targets("ignore");
  const std::string format = reader.text("format", "");
  reader.word("quantization_status", "compressed",
              {"initialized", "calibration", "frozen", "compressed", "decompressed"});
  refuse_changed_weights(reader);
  const json::value* groups = reader.find("config_groups");
  const bool keys_alone = reader.find("kv_cache_scheme") != nullptr;
  if (groups == nullptr || !groups->is_object() || (groups->get_object().empty() && !keys_alone))
    return reader.fail("'config_groups' is missing or empty");
  for (const auto& [name, value] : groups->get_object())
    if (std::optional<QuantGroup> group = read_group(reader, std::string(name), value, format))
      out.groups.push_back(std::move(*group));
}

}  // namespace sluice::models

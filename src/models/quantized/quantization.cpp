#include "models/quantized/quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

namespace sluice::models {

namespace {

constexpr int kLargestGroup = 1 << 20;

Error refused(std::string message) {
  return {ErrorCode::Unsupported, "quantization_config: " + std::move(message)};
}

std::string shown(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > 80) text.replace(80, std::string::npos, "...");
  return text;
}

// Keeps the first problem.
class Reader {
 public:
  explicit Reader(const json::object& object) : object_(object) {}

  int64_t integer(std::string_view key, int64_t fallback) { return take(get_int(object_, key), fallback); }
  bool flag(std::string_view key, bool fallback) { return take(get_bool(object_, key), fallback); }
  std::string text(std::string_view key, std::string fallback) {
    return take(get_string(object_, key), std::move(fallback));
  }
  std::vector<ModuleTarget> targets(std::string_view key) {
    std::vector<ModuleTarget> out;
    const json::value* value = object_.if_contains(json::string_view(key.data(), key.size()));
    if (value == nullptr || value->is_null()) return out;
    if (!value->is_array()) {
      fail(fmt::format("'{}' is {}, must be a list of names", key, shown(*value)));
      return out;
    }
    for (const json::value& item : value->get_array()) {
      if (!item.is_string()) {
        fail(fmt::format("'{}' holds {}, must be names", key, shown(item)));
        return {};
      }
      Result<ModuleTarget> target = ModuleTarget::read(std::string(item.get_string()));
      if (!target) {
        fail(fmt::format("'{}': {}", key, target.error().message));
        return {};
      }
      out.push_back(std::move(*target));
    }
    return out;
  }
  // -1 and nothing mean that there are no groups.
  int group_size() {
    const int64_t size = integer("group_size", -1);
    if (size == -1) return 0;
    if (size < 1 || size > kLargestGroup)
      fail(fmt::format("'group_size' is {}, must be -1 or 1 to {}", size, kLargestGroup));
    return static_cast<int>(size);
  }
  int bits(std::string_view key, std::initializer_list<int> known) {
    const int64_t bits = integer(key, 0);
    if (std::find(known.begin(), known.end(), bits) == known.end())
      fail(fmt::format("'{}' is {}, must be {}", key, bits, fmt::join(known, " or ")));
    return static_cast<int>(bits);
  }
  void fail(std::string message) {
    if (status_.ok()) status_ = refused(std::move(message));
  }
  const Status& status() const { return status_; }

 private:
  template <class T>
  T take(Result<std::optional<T>> found, T fallback) {
    if (!found) fail(found.error().message);
    return found && found->has_value() ? **found : fallback;
  }
  const json::object& object_;
  Status status_;
};

void read_gptq(Reader& reader, Quantization& out) {
  out.method = Quantization::Method::Gptq;
  out.bits = reader.bits("bits", {2, 4, 8});
  out.group_size = reader.group_size();
  const std::string format = reader.text("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    reader.fail(fmt::format("'checkpoint_format' is '{}', must be 'gptq' or 'gptq_v2'", format));
  if (reader.flag("is_marlin_format", false))
    reader.fail("'is_marlin_format' is true: must be in GPTQ's own order");
  out.zeros_less_one = format == "gptq";
}

void read_awq(Reader& reader, Quantization& out) {
  out.method = Quantization::Method::Awq;
  out.bits = reader.bits("bits", {4});
  out.group_size = reader.group_size();
  std::string version = reader.text("version", "gemm");
  std::transform(version.begin(), version.end(), version.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (version != "gemm") reader.fail(fmt::format("'version' is '{}', must be 'gemm'", version));
  out.ignore = reader.targets("modules_to_not_convert");
}

void read_bitsandbytes(Reader& reader, Quantization& out) {
  out.method = Quantization::Method::Bitsandbytes;
  const bool four = reader.flag("load_in_4bit", reader.flag("_load_in_4bit", false));
  const bool eight = reader.flag("load_in_8bit", reader.flag("_load_in_8bit", false));
  if (four == eight) reader.fail(fmt::format("'load_in_4bit' and 'load_in_8bit' are both {}", four));
  out.bits = four ? 4 : 8;
  out.ignore = reader.targets("llm_int8_skip_modules");
}

void read_fp8(Reader& reader, const json::object& object, Quantization& out) {
  out.method = Quantization::Method::Fp8;
  out.bits = 8;
  if (const std::string format = reader.text("fmt", "e4m3"); format != "e4m3" && format != "float8_e4m3fn")
    reader.fail(fmt::format("'fmt' is '{}', must be 'e4m3'", format));
  out.ignore = reader.targets("modules_to_not_convert");
  const json::value* block = object.if_contains("weight_block_size");
  if (block == nullptr || block->is_null()) return;
  const json::array* sides = block->if_array();
  const auto side = [&](size_t i) { return (*sides)[i].is_int64() ? (*sides)[i].get_int64() : 0; };
  if (sides == nullptr || sides->size() != 2 || side(0) < 1 || side(1) < 1 || side(0) > kLargestGroup ||
      side(1) > kLargestGroup)
    return reader.fail(fmt::format("'weight_block_size' is {}, must be two sizes", shown(*block)));
  out.block_rows = static_cast<int>(side(0));
  out.block_cols = static_cast<int>(side(1));
}

std::optional<QuantGroup::Format> format_named(const std::string& name, bool floats, int bits) {
  using Format = QuantGroup::Format;
  if (name == "pack-quantized") return Format::Packed;
  if (name == "int-quantized") return Format::Int;
  if (name == "float-quantized" || name == "mxfp8-quantized") return Format::Float;
  if (name == "naive-quantized") return floats ? Format::Float : Format::Int;
  if (name == "nvfp4-pack-quantized") return Format::Nvfp4;
  if (name == "mxfp4-pack-quantized") return Format::Mxfp4;
  if (name == "mixed-precision" || name == "dense" || name.empty())
    return floats ? Format::Float : bits == 8 ? Format::Int : Format::Packed;
  return std::nullopt;
}

// One entry of config_groups.
Result<QuantGroup> read_group(std::string_view name, const json::value& value, const std::string& format) {
  if (!value.is_object())
    return refused(fmt::format("group '{}' is {}, must be an object", name, shown(value)));
  Reader outer(value.get_object());
  QuantGroup group;
  group.targets = outer.targets("targets");
  const std::string own = outer.text("format", format);
  const json::value* weights = value.get_object().if_contains("weights");
  if (weights == nullptr || !weights->is_object())
    return refused(fmt::format("group '{}' has no 'weights'", name));
  Reader reader(weights->get_object());
  const bool floats = reader.text("type", "int") == "float";
  group.bits = floats ? reader.bits("num_bits", {4, 8}) : reader.bits("num_bits", {2, 4, 8});
  group.symmetric = reader.flag("symmetric", true);
  const std::string strategy = reader.text("strategy", "");
  const bool grouped = strategy == "group" || strategy == "tensor_group";
  group.group_size = reader.group_size();
  if (grouped && group.group_size == 0)
    reader.fail(
        fmt::format("group '{}': 'strategy' is '{}', but 'group_size' is not a size", name, strategy));
  if ((strategy == "channel" || strategy == "tensor") && group.group_size > 0)
    reader.fail(fmt::format("group '{}': 'strategy' is '{}', but 'group_size' is {}", name, strategy,
                            group.group_size));
  const std::optional<QuantGroup::Format> known = format_named(own, floats, group.bits);
  if (!known) reader.fail(fmt::format("'format' is '{}', which is not known", own));
  group.format = known.value_or(QuantGroup::Format::Packed);
  if (group.format == QuantGroup::Format::Float && group.bits != 8)
    reader.fail(fmt::format("group '{}': 'num_bits' is {}, must be 8 in float-quantized", name, group.bits));
  if (group.format == QuantGroup::Format::Int && group.bits != 8)
    reader.fail(fmt::format("group '{}': 'num_bits' is {}, must be 8 in int-quantized", name, group.bits));
  for (const Reader* one : {&outer, &reader})
    if (!one->status().ok()) return one->status().error();
  return group;
}

void read_compressed(Reader& reader, const json::object& object, Quantization& out) {
  out.method = Quantization::Method::CompressedTensors;
  out.ignore = reader.targets("ignore");
  const std::string format = reader.text("format", "");
  const json::value* groups = object.if_contains("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->get_object().empty())
    return reader.fail("'config_groups' is missing or empty");
  for (const auto& [name, value] : groups->get_object()) {
    Result<QuantGroup> group = read_group(name, value, format);
    if (!group) return reader.fail(group.error().message.substr(std::string("quantization_config: ").size()));
    out.groups.push_back(std::move(*group));
  }
}

void read_modelopt_keys(Reader& reader, Quantization& out) {
  out.method = Quantization::Method::Modelopt;
  const std::string algorithm = reader.text("quant_algo", "");
  if (algorithm != "NVFP4" && algorithm != "FP8" && algorithm != "MIXED_PRECISION" &&
      algorithm != "FP8_PB_WO" && algorithm != "FP8_PER_CHANNEL_PER_TOKEN" && algorithm != "MXFP8")
    reader.fail(fmt::format("'quant_algo' is '{}', must be 'NVFP4', 'FP8' or 'MXFP8'", algorithm));
  out.bits = algorithm == "NVFP4" ? 4 : 8;
  out.group_size = reader.group_size();
  if (algorithm == "NVFP4" && out.group_size != 0 && out.group_size != 16)
    reader.fail(fmt::format("'group_size' is {}, must be 16 in NVFP4", out.group_size));
  out.ignore = reader.targets("exclude_modules");
  if (out.ignore.empty()) out.ignore = reader.targets("ignore");
}

}  // namespace

Result<bool> Quantization::ignores(std::string_view module) const {
  for (const ModuleTarget& target : ignore) {
    Result<bool> named = target.names(module);
    if (!named || *named) return named;
  }
  return false;
}

Result<const QuantGroup*> Quantization::group_of(std::string_view module) const {
  for (const QuantGroup& group : groups)
    for (const ModuleTarget& target : group.targets) {
      const Result<bool> named = target.names(module);
      if (!named) return named.error();
      if (*named) return &group;
    }
  for (const QuantGroup& group : groups)
    if (std::any_of(group.targets.begin(), group.targets.end(),
                    [](const ModuleTarget& target) { return target.is_class(); }))
      return &group;
  return nullptr;
}

Result<int> Quantization::group_columns(std::string_view module) const {
  const Result<const QuantGroup*> group = group_of(module);
  if (!group) return group.error();
  return *group == nullptr ? 0 : (*group)->group_size;
}

Result<Quantization> read_modelopt(const json::object& file) {
  const json::value* inner = file.if_contains("quantization");
  const json::object* keys = inner == nullptr ? nullptr : inner->if_object();
  if (keys == nullptr) return refused("hf_quant_config.json has no 'quantization'");
  Quantization out;
  Reader reader(*keys);
  read_modelopt_keys(reader, out);
  if (!reader.status().ok()) return reader.status().error();
  return out;
}

Result<Quantization> read_quantization(const json::object& config) {
  const json::value* value = config.if_contains("quantization_config");
  if (value == nullptr || value->is_null()) value = config.if_contains("compression_config");
  if (value == nullptr || value->is_null()) return Quantization();
  if (!value->is_object()) return refused(fmt::format("is {}, must be an object", shown(*value)));
  const json::object& object = value->get_object();
  Reader reader(object);
  Quantization out;
  std::string method = reader.text("quant_method", "");
  if (method.empty() && object.contains("config_groups")) method = "compressed-tensors";
  if (method == "gptq") {
    read_gptq(reader, out);
  } else if (method == "awq") {
    read_awq(reader, out);
  } else if (method == "compressed-tensors") {
    read_compressed(reader, object, out);
  } else if (method == "fp8" || method == "fbgemm_fp8") {
    read_fp8(reader, object, out);
  } else if (method == "bitsandbytes") {
    read_bitsandbytes(reader, out);
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    read_modelopt_keys(reader, out);
  } else if (method == "mxfp4" || method == "bitnet") {
    out.method = Quantization::Method::Other;  // told by the tensors themselves
  } else {
    reader.fail(fmt::format(
        "'quant_method' is '{}', must be one of awq, bitsandbytes, compressed-tensors, fp8, gptq, "
        "modelopt, mxfp4",
        method));
  }
  if (!reader.status().ok()) return reader.status().error();
  return out;
}

}  // namespace sluice::models

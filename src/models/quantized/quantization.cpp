#include "models/quantized/quantization.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "models/quantized/method_configs.h"

namespace sluice::models {

namespace {

// What Model Optimizer calls the formats that are read here.
constexpr std::string_view kAlgorithms[] = {"NVFP4", "FP8", "FP8_PB_WO", "FP8_PER_CHANNEL_PER_TOKEN",
                                            "MXFP8"};

void read_bitsandbytes(ConfigReader& reader, Quantization& out) {
  out.method = Quantization::Method::Bitsandbytes;
  const bool four = reader.flag("load_in_4bit", reader.flag("_load_in_4bit", false));
  const bool eight = reader.flag("load_in_8bit", reader.flag("_load_in_8bit", false));
  if (four == eight) reader.fail(fmt::format("'load_in_4bit' and 'load_in_8bit' are both {}", four));
  out.bits = four ? 4 : 8;
  out.ignore = reader.targets("llm_int8_skip_modules");
}

void read_fp8(ConfigReader& reader, Quantization& out) {
  out.method = Quantization::Method::Fp8;
  out.bits = 8;
  reader.word("fmt", "e4m3", {"e4m3", "float8_e4m3fn"});
  reader.word("activation_scheme", "dynamic", {"dynamic", "static"});
  std::tie(out.block_rows, out.block_cols) = reader.block("weight_block_size");
  out.ignore = reader.targets("modules_to_not_convert");
  if (out.ignore.empty()) out.ignore = reader.targets("ignored_layers");
}

void check_algorithm(ConfigReader& reader, const std::string& where, const std::string& algorithm) {
  if (std::find(std::begin(kAlgorithms), std::end(kAlgorithms), algorithm) == std::end(kAlgorithms))
    reader.fail(fmt::format("{}'quant_algo' is '{}', must be one of {}", where, algorithm,
                            fmt::join(kAlgorithms, ", ")));
}

void read_modelopt_keys(ConfigReader& reader, Quantization& out) {
  if (reader.find("quant_algo") == nullptr && reader.find("kv_cache_quant_algo") != nullptr)
    return;  // only the KV cache is meant
  out.method = Quantization::Method::Modelopt;
  const std::string algorithm = reader.text("quant_algo", "");
  const bool mixed = algorithm == "MIXED_PRECISION";
  if (!mixed) check_algorithm(reader, "", algorithm);
  out.bits = mixed || algorithm == "NVFP4" ? 4 : 8;
  out.group_size = reader.group_size();
  if (algorithm == "NVFP4" && out.group_size != 0 && out.group_size != 16)
    reader.fail(fmt::format("'group_size' is {}, must be 16 in NVFP4", out.group_size));
  out.ignore = reader.targets("exclude_modules");
  if (out.ignore.empty()) out.ignore = reader.targets("ignore");
  const json::value* layers = reader.find("quantized_layers");
  if (layers == nullptr) return;
  if (!layers->is_object())
    return reader.fail(fmt::format("'quantized_layers' is {}, must be an object", shown(*layers)));
  for (const auto& [name, keys] : layers->get_object()) {
    const std::string where = fmt::format("'quantized_layers': '{}': ", std::string_view(name));
    if (!keys.is_object()) return reader.fail(where + shown(keys) + " is no object");
    ConfigReader own(keys.get_object());
    check_algorithm(own, where, own.text("quant_algo", ""));
    if (!own.problem().empty()) return reader.fail(own.problem());
  }
}

using ReadKeys = void (*)(ConfigReader&, Quantization&);

struct NamedMethod {
  std::string_view name;
  ReadKeys read;
};

void read_nothing(ConfigReader&, Quantization& out) {
  out.method = Quantization::Method::Other;  // told by the tensors themselves
}

constexpr NamedMethod kMethods[] = {
    {"auto-round", read_auto_round_config},
    {"intel/auto-round", read_auto_round_config},
    {"awq", read_awq_config},
    {"bitnet", read_nothing},
    {"bitsandbytes", read_bitsandbytes},
    {"compressed-tensors", read_compressed_config},
    {"fbgemm_fp8", read_fp8},
    {"fp8", read_fp8},
    {"gptq", read_gptq_config},
    {"modelopt", read_modelopt_keys},
    {"modelopt_fp4", read_modelopt_keys},
    {"mxfp4", read_nothing},
};

Result<Quantization> read_keys(const json::object& keys, std::string_view fallback) {
  ConfigReader reader(keys);
  Quantization out;
  std::string method = reader.text("quant_method", std::string(fallback));
  if (method.empty() && keys.contains("config_groups")) method = "compressed-tensors";
  const auto* known = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [&](const NamedMethod& one) { return one.name == method; });
  if (known != std::end(kMethods)) {
    known->read(reader, out);
  } else {
    std::string names;
    for (const NamedMethod& one : kMethods) names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
    reader.fail(fmt::format("'quant_method' is '{}', must be one of {}", method, names));
  }
  if (!reader.problem().empty()) return refused_config(reader.problem());
  return out;
}

// How closely an entry of `targets` names a module.
enum class Match : uint8_t { None, Class, Pattern, Name };

Result<Match> match(const ModuleTarget& target, Quantization::Names names) {
  const Result<bool> named = target.names(names);
  if (!named) return named.error();
  if (*named) return target.is_pattern() ? Match::Pattern : Match::Name;
  return target.is_class_of(names) ? Match::Class : Match::None;
}

}  // namespace

Result<bool> Quantization::ignores(Names names) const {
  for (const ModuleTarget& target : ignore) {
    Result<bool> named = target.names(names);
    if (!named || *named) return named;
  }
  for (const ModuleOverride& one : overrides) {
    const Result<bool> named = one.target.names(names);
    if (!named) return named.error();
    if (*named) return one.excluded;
  }
  return false;
}

Result<const QuantGroup*> Quantization::group_of(Names names) const {
  const QuantGroup* best = nullptr;
  Match closest = Match::None;
  for (const QuantGroup& group : groups)
    for (const ModuleTarget& target : group.targets) {
      const Result<Match> found = match(target, names);
      if (!found) return found.error();
      if (*found <= closest) continue;
      closest = *found;
      best = &group;
    }
  return best;
}

Result<IntegerPacking> Quantization::packing_of(Names names) const {
  for (const ModuleOverride& one : overrides) {
    const Result<bool> named = one.target.names(names);
    if (!named) return named.error();
    if (*named) return one.packing;
  }
  return IntegerPacking{bits, group_size, ordered};
}

Result<ScaleTile> Quantization::tile_of(Names names) const {
  if (block_rows > 0)
    return ScaleTile{block_rows, block_cols,
                     fmt::format("weight_block_size is [{}, {}]", block_rows, block_cols)};
  const Result<const QuantGroup*> group = group_of(names);
  if (!group) return group.error();
  return *group == nullptr ? ScaleTile() : (*group)->tile;
}

Result<Quantization> read_modelopt(const json::object& file) {
  const json::value* inner = file.if_contains("quantization");
  const json::object* keys = inner == nullptr ? nullptr : inner->if_object();
  if (keys == nullptr) return refused_config("hf_quant_config.json has no 'quantization'");
  Quantization out;
  ConfigReader reader(*keys);
  read_modelopt_keys(reader, out);
  if (!reader.problem().empty()) return refused_config(reader.problem());
  return out;
}

Result<Quantization> read_quantization_file(const json::object& file, std::string_view method) {
  return read_keys(file, method);
}

Result<Quantization> read_quantization(const json::object& config) {
  const json::value* value = config.if_contains("quantization_config");
  if (value == nullptr || value->is_null()) value = config.if_contains("compression_config");
  if (value == nullptr || value->is_null()) return Quantization();
  if (!value->is_object()) return refused_config(fmt::format("is {}, must be an object", shown(*value)));
  return read_keys(value->get_object(), "");
}

}  // namespace sluice::models

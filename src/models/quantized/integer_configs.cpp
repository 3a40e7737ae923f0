#include <fmt/format.h>

#include "models/quantized/method_configs.h"

namespace sluice::models {

namespace {

// A pattern or a name, as AutoRound and GPTQModel have them for keys.
Result<ModuleTarget> read_target(std::string_view text, bool pattern) {
  return ModuleTarget::read((pattern ? "re:" : "") + std::string(text));
}

IntegerPacking packing_of_all(const Quantization& all) {
  return {all.bits, all.group_size, all.ordered};
}

// `values` in the place of what holds for all modules; of 16 bits and more: not quantised.
void add_override(ConfigReader& reader, std::string_view key, const json::object& values, ModuleOverride one,
                  Quantization& out) {
  ConfigReader own(values);
  one.packing = packing_of_all(out);
  if (own.find("bits") != nullptr) {
    one.excluded = own.integer("bits", 0) >= 16;
    if (!one.excluded) one.packing.bits = own.bits("bits", {2, 3, 4, 8});
  }
  if (own.find("group_size") != nullptr) one.packing.group_size = own.group_size();
  one.packing.ordered = own.flag("desc_act", one.packing.ordered);
  if (!own.problem().empty()) reader.fail(fmt::format("'{}': {}", key, own.problem()));
  out.overrides.push_back(std::move(one));
}

// GPTQModel's `dynamic`: "+:pattern" or "pattern" with keys for the modules it matches, "-:pattern" for modules that are not
// quantised.
void read_dynamic(ConfigReader& reader, Quantization& out) {
  const json::value* value = reader.find("dynamic");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.fail(fmt::format("'dynamic' is {}, must be patterns with their keys", shown(*value)));
  for (const auto& [key, keys] : value->get_object()) {
    std::string_view pattern(key.data(), key.size());
    const bool excluded = pattern.starts_with("-:");
    if (excluded || pattern.starts_with("+:")) pattern.remove_prefix(2);
    Result<ModuleTarget> target = read_target(pattern, true);
    if (!target) return reader.fail(fmt::format("'dynamic': {}", target.error().message));
    if (!keys.is_object())
      return reader.fail(fmt::format("'dynamic': '{}' is {}, must be an object", pattern, shown(keys)));
    const json::object none;
    add_override(reader, "dynamic", excluded ? none : keys.get_object(), {std::move(*target), excluded, {}},
                 out);
  }
}

// AutoRound's `extra_config`: names of modules, or patterns, with their keys.
void read_extra(ConfigReader& reader, Quantization& out) {
  const json::value* value = reader.find("extra_config");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.fail(fmt::format("'extra_config' is {}, must be names with their keys", shown(*value)));
  for (const auto& [key, keys] : value->get_object()) {
    const std::string_view name(key.data(), key.size());
    Result<ModuleTarget> target = read_target(name, name.find_first_of("\\^$*+?()[]|") != name.npos);
    if (!target) return reader.fail(fmt::format("'extra_config': {}", target.error().message));
    if (!keys.is_object())
      return reader.fail(fmt::format("'extra_config': '{}' is {}, must be an object", name, shown(keys)));
    add_override(reader, "extra_config", keys.get_object(), {std::move(*target), false, {}}, out);
  }
}

}  // namespace

void read_gptq_config(ConfigReader& reader, Quantization& out) {
  out.method = Quantization::Method::Gptq;
  out.bits = reader.bits("bits", {2, 3, 4, 8});
  out.group_size = reader.group_size();
  reader.flag("sym", true);  // zero points say it
  out.ordered = reader.flag("desc_act", false);
  const std::string_view key = reader.find("checkpoint_format") != nullptr ? "checkpoint_format" : "format";
  out.zeros_less_one = reader.word(key, "gptq", {"gptq", "gptq_v2"}) == "gptq";
  if (reader.flag("is_marlin_format", false))
    reader.fail("'is_marlin_format' is true: must be in GPTQ's own order");
  reader.word("pack_dtype", "int32", {"int32", "torch.int32"});
  read_dynamic(reader, out);
}

void read_awq_config(ConfigReader& reader, Quantization& out) {
  out.method = Quantization::Method::Awq;
  out.bits = reader.bits(reader.find("bits") != nullptr ? "bits" : "w_bit", {4});
  out.group_size = reader.group_size(reader.find("group_size") != nullptr ? "group_size" : "q_group_size");
  out.has_zeros = reader.flag("zero_point", true);
  reader.word(reader.find("version") != nullptr ? "version" : "format", "gemm", {"gemm"});
  out.ignore = reader.targets("modules_to_not_convert");
}

void read_auto_round_config(ConfigReader& reader, Quantization& out) {
  reader.word("data_type", "int", {"int"});
  const std::string_view key = reader.find("packing_format") != nullptr ? "packing_format" : "backend";
  const std::string format = reader.word(key, "auto_round:auto_gptq",
                                         {"auto", "auto_round", "auto_round:gptq", "auto_round:auto_gptq",
                                          "auto_round:awq", "auto_round:auto_awq"});
  out.group_size = reader.group_size();
  if (format.ends_with("awq")) {
    out.method = Quantization::Method::Awq;
    out.bits = reader.bits("bits", {4});
  } else {
    out.method = Quantization::Method::Gptq;
    out.bits = reader.bits("bits", {2, 3, 4, 8});
    out.zeros_less_one = format != "auto_round";
  }
  read_extra(reader, out);
}

}  // namespace sluice::models

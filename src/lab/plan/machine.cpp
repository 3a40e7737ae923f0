#include "lab/plan/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/system/file.h"

namespace sluice::lab {

namespace {

constexpr double kGiga = 1e9, kTera = 1e12;
constexpr size_t kProfileBytes = size_t{1} << 20;

Machine gpu(std::string name, double memory, double read, std::array<double, 3> multiply) {
  Machine machine;
  machine.name = std::move(name);
  machine.memory = memory * kGiga;
  machine.read = read * kGiga;
  for (size_t i = 0; i < multiply.size(); ++i) machine.multiply[i] = multiply[i] * kTera;
  return machine;
}

Machine linked(Machine machine, double host, double peer, double price) {
  machine.host_link = host * kGiga;
  machine.peer_link = peer * kGiga;
  machine.price = price;
  return machine;
}

Machine host(Machine machine, double price, double overhead) {
  machine.blocks = Arithmetic::Int8;
  machine.price = price;
  machine.overhead = overhead;
  machine.multiply_share = 0.5;
  return machine;
}

// Memory in GB, reading in GB/s, then TOPS of int8 (fp8 where it has that), bf16 with f32 sums, and f32; links in GB/s.
std::vector<Machine> make_known() {
  return {
      linked(gpu("H100", 80, 3350, {1979, 989, 67}), 64, 450, 2.5),
      linked(gpu("H200", 141, 4800, {1979, 989, 67}), 64, 450, 3.5),
      linked(gpu("B200", 180, 8000, {4500, 2250, 80}), 64, 900, 5.5),
      linked(gpu("A100", 80, 2039, {624, 312, 19.5}), 32, 300, 1.5),
      linked(gpu("L40S", 48, 864, {733, 362, 91.6}), 32, 32, 0.9),
      linked(gpu("RTX 4090", 24, 1008, {660.6, 165.2, 82.6}), 32, 32, 0.4),
      linked(gpu("RTX 5090", 32, 1792, {838, 209.5, 104.8}), 64, 64, 0.6),
      host(gpu("M3 Max", 128, 400, {28.4, 28.4, 14.2}), 0, 8e-6),
      host(gpu("EPYC", 384, 460.8, {43.6, 21.8, 10.9}), 2, 6e-6),  // 9654: 96 cores, 12 channels of DDR5-4800
  };
}

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

struct NumberField {
  std::string_view key;
  double Machine::*member;
};
constexpr NumberField kNumbers[] = {
    {"memory_bytes", &Machine::memory},
    {"read_bytes_per_s", &Machine::read},
    {"host_link_bytes_per_s", &Machine::host_link},
    {"peer_link_bytes_per_s", &Machine::peer_link},
    {"price_per_hour", &Machine::price},
    {"read_share", &Machine::read_share},
    {"multiply_share", &Machine::multiply_share},
    {"overhead_s", &Machine::overhead},
    {"elementwise_s", &Machine::elementwise},
};

struct AttentionField {
  std::string_view key;
  double AttentionRates::*member;
};
constexpr AttentionField kAttention[] = {
    {"attention_read_s", &AttentionRates::read},
    {"attention_row_s", &AttentionRates::row},
    {"attention_tile_short_s", &AttentionRates::tile_short},
    {"attention_tile_long_s", &AttentionRates::tile_long},
};

constexpr std::pair<std::string_view, int AttentionRate::*> kAttentionCounts[] = {
    {"heads", &AttentionRate::heads},     {"kv_heads", &AttentionRate::kv_heads},
    {"dim", &AttentionRate::dim},         {"sequences", &AttentionRate::sequences},
    {"queries", &AttentionRate::queries},
};

Result<double> read_positive(const json::object& object, std::string_view key, std::string_view what) {
  Result<std::optional<double>> value = get_number(object, key);
  if (!value) return value.error();
  if (!*value)
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: '{}' is not there; 'sluice plan --calibrate' measures it", what, key)};
  if (!(**value >= 0))
    return Error{ErrorCode::Corrupt, fmt::format("{}: '{}' must be a number of at least 0", what, key)};
  return **value;
}

Result<GemmRate> read_gemm(const json::value& value, std::string_view what) {
  if (!value.is_object()) return Error{ErrorCode::Corrupt, fmt::format("{}: a GEMM is no object", what)};
  const json::object& object = value.as_object();
  Result<std::optional<std::string>> type = get_string(object, "type");
  if (!type) return type.error();
  GemmRate rate;
  const auto found = std::find_if(kDTypes.begin(), kDTypes.end(),
                                  [&](const DTypeInfo& info) { return *type && info.name == **type; });
  if (found == kDTypes.end())
    return Error{ErrorCode::Corrupt, fmt::format("{}: unknown type '{}'", what, type->value_or(""))};
  rate.type = found->type;
  Result<double> rows = read_positive(object, "rows", what);
  if (!rows) return rows.error();
  Result<double> width = read_positive(object, "width", what);
  if (!width) return width.error();
  Result<std::optional<double>> inputs = get_number(object, "inputs");
  if (!inputs) return inputs.error();
  Result<double> seconds = read_positive(object, "s_per_element", what);
  if (!seconds) return seconds.error();
  const double from = inputs->value_or(0);
  if (!(*rows >= 1 && *rows <= 1 << 20) || !(*width >= 1 && *width <= 1 << 24) ||
      !(from >= 0 && from <= 1 << 24) || !(*seconds > 0))
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: GEMM of {} rows and width {} in {} s", what, *rows, *width, *seconds)};
  rate.width = static_cast<int>(*width);
  rate.inputs = static_cast<int>(from);
  rate.rows = static_cast<int>(*rows);
  rate.seconds_per_element = *seconds;
  return rate;
}

Result<AttentionRate> read_attention(const json::value& value, std::string_view what) {
  if (!value.is_object()) return Error{ErrorCode::Corrupt, fmt::format("{}: attention is no object", what)};
  AttentionRate rate;
  for (const auto& [key, member] : kAttentionCounts) {
    Result<double> number = read_positive(value.as_object(), key, what);
    if (!number) return number.error();
    if (!(*number >= 1 && *number <= 1 << 20))
      return Error{ErrorCode::Corrupt, fmt::format("{}: '{}' of attention is {}", what, key, *number)};
    rate.*member = static_cast<int>(*number);
  }
  for (const auto& [key, member] :
       {std::pair("seen", &AttentionRate::seen), std::pair("seconds", &AttentionRate::seconds)}) {
    Result<double> number = read_positive(value.as_object(), key, what);
    if (!number) return number.error();
    rate.*member = *number;
  }
  return rate;
}

}  // namespace

// Weights of 16 bits, and those of 8 that are no blocks, are multiplied in bf16.
double Machine::multiply_rate(DType type) const {
  const Arithmetic arithmetic = is_block(type) ? blocks : arithmetic_of(type);
  const bool narrow = type == DType::F16 || type == DType::F8_E4M3;
  return multiply[static_cast<size_t>(narrow ? Arithmetic::Bf16 : arithmetic)];
}

std::span<const Machine> known_machines() {
  static const std::vector<Machine> machines = make_known();
  return machines;
}

Result<Machine> machine_named(std::string_view name) {
  std::string names;
  for (const Machine& machine : known_machines()) {
    if (folded(machine.name) == folded(name)) return machine;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", machine.name);
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("unknown device '{}'; there are: {}, or 'this' after --calibrate", name, names)};
}

namespace {

// Of one measured shape.
double seconds_by_rows(const Machine& machine, const StepGemm& gemm, double rows) {
  const GemmRate* below = nullptr;
  for (const GemmRate& rate : machine.gemms) {
    if (rate.type != gemm.type || rate.width != gemm.outputs || rate.inputs != gemm.inputs) continue;
    if (rate.rows >= rows) {
      if (below == nullptr) return rate.seconds_per_element;
      const double share = (rows - below->rows) / (rate.rows - below->rows);
      return below->seconds_per_element + share * (rate.seconds_per_element - below->seconds_per_element);
    }
    below = &rate;
  }
  return below == nullptr ? 0 : below->seconds_per_element * rows / below->rows;
}

}  // namespace

double gemm_seconds_per_element(const Machine& machine, DType type, double rows, double width) {
  int narrow = 0, wide = 0;  // the measured widths around this one
  for (const GemmRate& rate : machine.gemms) {
    if (rate.type != type || rate.inputs != 0) continue;
    if (narrow == 0 || (rate.width > narrow && rate.width <= width)) narrow = rate.width;
    if (wide == 0 || (wide < width && rate.width > wide)) wide = rate.width;
  }
  const double at_narrow = seconds_by_rows(machine, {type, narrow, 0}, rows);
  if (wide <= narrow || width <= narrow) return at_narrow;
  // What a GEMM does for its edges falls with 1 / width beside what it does for its elements.
  const double share = std::min(1.0, (1.0 / narrow - 1 / width) / (1.0 / narrow - 1.0 / wide));
  return at_narrow + share * (seconds_by_rows(machine, {type, wide, 0}, rows) - at_narrow);
}

double shape_seconds_per_element(const Machine& machine, const StepGemm& gemm, double rows) {
  return seconds_by_rows(machine, gemm, rows);
}

json::object to_json(const Machine& machine) {
  json::object out{{"name", machine.name}};
  for (const NumberField& field : kNumbers) out[field.key] = machine.*field.member;
  for (const AttentionField& field : kAttention) out[field.key] = machine.attention.*field.member;
  json::object multiply;
  for (size_t i = 0; i < machine.multiply.size(); ++i) multiply[kArithmeticNames[i]] = machine.multiply[i];
  out["multiply_ops_per_s"] = std::move(multiply);
  out["blocks_as"] = kArithmeticNames[static_cast<size_t>(machine.blocks)];
  json::array gemms;
  for (const GemmRate& rate : machine.gemms)
    gemms.push_back(json::object{{"type", sluice::name(rate.type)},
                                 {"width", rate.width},
                                 {"inputs", rate.inputs},
                                 {"rows", rate.rows},
                                 {"s_per_element", rate.seconds_per_element}});
  out["gemms"] = std::move(gemms);
  json::array attentions;
  for (const AttentionRate& rate : machine.attentions) {
    json::object one;
    for (const auto& [key, member] : kAttentionCounts) one[key] = rate.*member;
    one["seen"] = rate.seen;
    one["seconds"] = rate.seconds;
    attentions.push_back(std::move(one));
  }
  out["attentions"] = std::move(attentions);
  if (!machine.steps.empty()) out["steps"] = to_json(machine.steps);
  return out;
}

Result<Machine> machine_from_json(const json::value& value, std::string_view what) {
  if (!value.is_object()) return Error{ErrorCode::Corrupt, fmt::format("{}: not an object", what)};
  const json::object& object = value.as_object();
  Machine machine;
  Result<std::optional<std::string>> name = get_string(object, "name");
  if (!name) return name.error();
  machine.name = name->value_or("unnamed");
  for (const NumberField& field : kNumbers) {
    Result<double> number = read_positive(object, field.key, what);
    if (!number) return number.error();
    machine.*field.member = *number;
  }
  for (const AttentionField& field : kAttention) {
    Result<double> number = read_positive(object, field.key, what);
    if (!number) return number.error();
    machine.attention.*field.member = *number;
  }
  const json::value* multiply = object.if_contains("multiply_ops_per_s");
  if (multiply == nullptr || !multiply->is_object())
    return Error{ErrorCode::Corrupt, fmt::format("{}: 'multiply_ops_per_s' is not there", what)};
  for (size_t i = 0; i < machine.multiply.size(); ++i) {
    Result<double> rate = read_positive(multiply->as_object(), kArithmeticNames[i], what);
    if (!rate) return rate.error();
    machine.multiply[i] = *rate;
  }
  Result<std::optional<std::string>> blocks = get_string(object, "blocks_as");
  if (!blocks) return blocks.error();
  if (*blocks && **blocks == kArithmeticNames[0]) machine.blocks = Arithmetic::Int8;
  const json::value* gemms = object.if_contains("gemms");
  if (gemms != nullptr && gemms->is_array()) {
    for (const json::value& entry : gemms->as_array()) {
      Result<GemmRate> rate = read_gemm(entry, what);
      if (!rate) return rate.error();
      machine.gemms.push_back(*rate);
    }
  }
  const json::value* attentions = object.if_contains("attentions");
  if (attentions != nullptr && attentions->is_array()) {
    for (const json::value& entry : attentions->as_array()) {
      Result<AttentionRate> rate = read_attention(entry, what);
      if (!rate) return rate.error();
      machine.attentions.push_back(*rate);
    }
  }
  if (const json::value* steps = object.if_contains("steps")) {
    Result<StepRates> rates = step_rates_from_json(*steps, what);
    if (!rates) return rates.error();
    machine.steps = std::move(*rates);
  }
  return machine;
}

std::string calibration_path(bool gpu) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path folder = cache != nullptr && *cache != 0
                                           ? std::filesystem::path(cache)
                                           : std::filesystem::path(home == nullptr ? "." : home) / ".cache";
  return (folder / (gpu ? "sluice/machine-cuda.json" : "sluice/machine.json")).string();
}

Status save_machine(const Machine& machine, const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::ofstream file(path, std::ios::trunc);
  file << write_json(to_json(machine)) << '\n';
  file.flush();
  if (!file) return Error{ErrorCode::Io, fmt::format("'{}' cannot be written", path)};
  return {};
}

Result<Machine> load_machine(const std::string& path) {
  Result<std::string> text = read_regular_file(path, kProfileBytes);
  if (!text) return text.error();
  Result<json::value> value = parse_json(*text, path);
  if (!value) return value.error();
  return machine_from_json(*value, path);
}

}  // namespace sluice::lab

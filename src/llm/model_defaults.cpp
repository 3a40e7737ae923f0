#include "llm/model_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>

#include "base/json.h"
#include "base/log.h"
#include "base/system/file.h"

namespace sluice::llm {

namespace {

using Defaults = request::SamplingDefaults;

constexpr size_t kMostConfigBytes = size_t{1} << 20;

// The names that a source has for the fields.
struct Names {
  std::string_view temperature, top_p, min_p, repetition_penalty, top_k;
};
constexpr Names kHuggingFace{"temperature", "top_p", "min_p", "repetition_penalty", "top_k"};
constexpr Names kGguf{"general.sampling.temp", "general.sampling.top_p", "general.sampling.min_p",
                      "general.sampling.penalty_repeat", "general.sampling.top_k"};

template <class Number, class Whole>
Result<Defaults> read(const Names& names, Number number, Whole whole) {
  Defaults out;
  Status status;
  const auto take = [&](std::string_view name, std::optional<double>& target) {
    Result<std::optional<double>> value = number(name);
    if (!value) status = value.error();
    if (value) target = *value;
  };
  take(names.temperature, out.temperature);
  take(names.top_p, out.top_p);
  take(names.min_p, out.min_p);
  take(names.repetition_penalty, out.repetition_penalty);
  if (!status) return status.error();
  const Result<std::optional<int64_t>> top_k = whole(names.top_k);
  if (!top_k) return top_k.error();
  if (*top_k) out.top_k = static_cast<int>(std::clamp<int64_t>(**top_k, -1, std::numeric_limits<int>::max()));
  if (Status valid = request::validate(out); !valid) return valid.error();
  return out;
}

// The decimal that was meant where a file holds the nearest 32-bit float: 0.9, not 0.89999998.
double shortest(double value) {
  const std::string text = fmt::format("{}", static_cast<float>(value));
  double out = value;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Recommendations that stand in a model's description alone.
struct Known {
  std::string_view basename;  // of GGUF's general.basename, or in a folder's name
  Defaults defaults;
};
const auto kKnown = std::to_array<Known>({
    {"smollm2", {.temperature = 0.2, .top_p = 0.9}},
});

Defaults recommended(const models::ModelFiles& files) {
  std::string name;
  if (files.is_gguf) {
    const auto basename = files.metadata.get_string("general.basename");
    if (basename && *basename) name = lower(**basename);
  } else {
    name = lower(std::filesystem::absolute(files.path).lexically_normal().string());
    if (name.find("instruct") == std::string::npos) return {};
  }
  for (const Known& known : kKnown)
    if (name == known.basename || (!files.is_gguf && name.find(known.basename) != std::string::npos))
      return known.defaults;
  return {};
}

}  // namespace

Result<Defaults> read_generation_config(const std::string& path) {
  const Result<std::string> text = read_regular_file(path, kMostConfigBytes);
  if (!text) return text.error();
  const Result<json::value> value = parse_json(*text, path);
  if (!value) return value.error();
  const json::object* object = value->if_object();
  if (object == nullptr) return Error{ErrorCode::Corrupt, path + ": not an object"};
  const Result<std::optional<bool>> sampled = get_bool(*object, "do_sample");
  if (!sampled) return sampled.error();
  Result<Defaults> out = read(
      kHuggingFace, [&](std::string_view name) { return get_number(*object, name); },
      [&](std::string_view name) { return get_int(*object, name); });
  if (out && sampled->value_or(true) == false)
    return Defaults{.temperature = 0, .repetition_penalty = out->repetition_penalty};
  return out;
}

Result<Defaults> read_gguf_sampling(const formats::GgufMetadata& metadata) {
  return read(
      kGguf,
      [&](std::string_view name) {
        Result<std::optional<double>> value = metadata.get_number(name);
        if (value && *value) *value = shortest(**value);
        return value;
      },
      [&](std::string_view name) { return metadata.get_int(name); });
}

Defaults model_defaults(const models::ModelFiles& files) {
  Result<Defaults> own = Defaults{};
  const std::filesystem::path config = std::filesystem::path(files.path) / "generation_config.json";
  std::error_code ec;
  if (files.is_gguf) {
    own = read_gguf_sampling(files.metadata);
  } else if (std::filesystem::is_regular_file(config, ec)) {
    own = read_generation_config(config.string());
  }
  if (!own) {
    log_warning("the model's sampling settings cannot be used: {}", own.error().message);
    own = Defaults{};
  }
  return own->empty() ? recommended(files) : *own;
}

}  // namespace sluice::llm

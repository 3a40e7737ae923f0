#include "models/loading/config/config.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/published_json.h"
#include "models/loading/config/class_defaults.h"
#include "models/loading/config/config_keys.h"

namespace sluice::models {

namespace {

constexpr int kMaxSize = 1 << 24;

void apply_aliases(json::object& object) {
  for (const auto& [alias, common] : kAliases) {
    const json::value* found = object.if_contains(json::string_view(alias.data(), alias.size()));
    if (found == nullptr || found->is_null()) continue;
    const json::value value = *found;  // a copy: a new key may move the object's memory
    json::value& target = object[json::string_view(common.data(), common.size())];
    if (target.is_null()) target = value;
  }
}

std::string first_architecture(const json::object& object) {
  const json::value* names = object.if_contains("architectures");
  const json::array* list = names == nullptr ? nullptr : names->if_array();
  if (list == nullptr || list->empty() || !list->front().is_string()) return "";
  return std::string(list->front().get_string());
}

struct ToJson {
  json::value operator()(bool value) const { return value; }
  json::value operator()(int64_t value) const { return value; }
  json::value operator()(uint64_t value) const { return value; }
  json::value operator()(double value) const { return value; }
  json::value operator()(std::string_view value) const { return json::string(value.data(), value.size()); }
  json::value operator()(const formats::GgufArray& array) const {
    return std::visit([](const auto& values) { return to_array(values); }, array);
  }
  template <class T>
  static json::value to_array(const std::vector<T>& values) {
    json::array out;
    for (const T& value : values) out.push_back(ToJson()(value));
    return out;
  }
};

// Lists with an entry per layer, which mean something else than one number does.
constexpr std::string_view kLayerFlags[] = {"sliding_window_pattern", "no_rope_layers",
                                            "activation_sparsity_scale"};

// GGUF repeats a count per layer where layers differ; a list of equal numbers means the one number.
json::value collapse(std::string_view key, json::value value) {
  if (std::find(std::begin(kLayerFlags), std::end(kLayerFlags), key) != std::end(kLayerFlags)) return value;
  const json::array* list = value.if_array();
  if (list == nullptr || list->empty() || !list->front().is_number()) return value;
  for (const json::value& item : *list)
    if (item != list->front()) return value;
  return list->front();
}

}  // namespace

Result<Config> Config::from_json(json::object object, std::string what) {
  Config config;
  config.what_ = std::move(what);
  config.architecture_ = first_architecture(object);
  if (config.architecture_.empty())
    return Error{ErrorCode::Corrupt, config.what_ + ": 'architectures' is missing or empty"};
  const auto type_of = [](const json::object& part) {
    const auto type = get_string(part, "model_type");
    return type && type->has_value() ? std::string(**type) : std::string();
  };
  std::string text_class = type_of(object);
  // Models with a vision tower keep the decoder's parameters one level down.
  if (const json::value* text = object.if_contains("text_config"); text != nullptr && text->is_object()) {
    const json::object inner = text->get_object();
    config.text_type_ = first_architecture(inner);
    text_class = type_of(inner);
    if (config.text_type_.empty()) config.text_type_ = text_class;
    for (const auto& [key, value] : inner)
      if (key != "tie_word_embeddings" || !object.contains(key)) object[key] = value;
  }
  apply_aliases(object);
  assume_class_defaults(object, text_class);
  config.object_ = std::move(object);
  return config;
}

Result<Config> Config::from_gguf(const formats::GgufMetadata& metadata, std::string what) {
  Config config;
  config.what_ = std::move(what);
  config.source_ = Source::Gguf;
  const auto architecture = metadata.get_string("general.architecture");
  if (!architecture) return architecture.error();
  if (!architecture->has_value())
    return Error{ErrorCode::Corrupt, config.what_ + ": metadata key 'general.architecture' is missing"};
  config.architecture_ = std::string(**architecture);
  const auto take = [&](const std::string& name, std::string_view key) {
    const auto found = metadata.values().find(name);
    if (found == metadata.values().end()) return;
    config.object_[json::string_view(key.data(), key.size())] =
        collapse(key, std::visit(ToJson(), found->second));
  };
  for (const auto& [suffix, key] : kGgufKeys) take(fmt::format("{}.{}", config.architecture_, suffix), key);
  for (const auto& [name, key] : kPlainGgufKeys) take(std::string(name), key);
  if (!config.has("vocab_size")) {
    if (const auto tokens = metadata.get_strings("tokenizer.ggml.tokens"); tokens && *tokens != nullptr)
      config.object_["vocab_size"] = static_cast<int64_t>((*tokens)->size());
  }
  return config;
}

const json::value* Config::find(std::string_view key) const {
  const json::value* value = object_.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string Config::spelled(std::string_view key) const {
  for (const auto& [suffix, common] : kGgufKeys)
    if (is_gguf() && common == key) return fmt::format("{}.{}", architecture_, suffix);
  for (const auto& [name, common] : kPlainGgufKeys)
    if (is_gguf() && common == key) return std::string(name);
  return std::string(key);
}

bool Config::has(std::string_view key) const {
  return find(key) != nullptr;
}

bool Config::is_null(std::string_view key) const {
  const json::value* value = object_.if_contains(json::string_view(key.data(), key.size()));
  return value != nullptr && value->is_null();
}

void Config::assume(std::string_view key, json::value value) {
  if (!has(key)) object_[json::string_view(key.data(), key.size())] = std::move(value);
}

void Config::drop(std::string_view key) {
  object_.erase(json::string_view(key.data(), key.size()));
}

void Config::fail(std::string message) {
  if (status_->ok()) *status_ = Error{ErrorCode::Corrupt, fmt::format("{}: {}", what_, message)};
}

Status Config::status() const {
  return *status_;
}

template <class T>
T Config::take(Result<std::optional<T>> found, std::string_view key, bool required, T fallback) {
  if (!found) {
    std::string message = found.error().message;
    if (const size_t at = message.find(key); at != std::string::npos)
      message.replace(at, key.size(), spelled(key));
    fail(std::move(message));
    return fallback;
  }
  if (!found->has_value()) {
    if (required) fail(fmt::format("'{}' is missing", spelled(key)));
    return fallback;
  }
  return **found;
}

int Config::size(std::string_view key) {
  const int64_t value = take<int64_t>(get_int(object_, key), key, true, 1);
  if (value < 1 || value > kMaxSize) {
    fail(fmt::format("'{}' is {}, must be 1 to {}", spelled(key), value, kMaxSize));
    return 1;
  }
  return static_cast<int>(value);
}

int Config::size_or(std::string_view key, int fallback) {
  const int64_t value = take<int64_t>(get_int(object_, key), key, false, fallback);
  constexpr int64_t kMost = int64_t{1} << 30;
  if (value != fallback && (value < 0 || value > kMost)) {
    fail(fmt::format("'{}' is {}, must be 0 to {}", spelled(key), value, kMost));
    return fallback;
  }
  return static_cast<int>(value);
}

float Config::number(std::string_view key) {
  return static_cast<float>(take<double>(get_number(object_, key), key, true, 1.0));
}

float Config::number_or(std::string_view key, float fallback) {
  const double value = take<double>(get_number(object_, key), key, false, fallback);
  if (!(std::abs(value) < 1e30)) {
    fail(fmt::format("'{}' is {}, must be below 1e30", spelled(key), value));
    return fallback;
  }
  return static_cast<float>(value);
}

bool Config::flag_or(std::string_view key, bool fallback) {
  if (const json::value* value = find(key); value != nullptr && value->is_number())
    return value->to_number<double>() != 0.0;
  return take<bool>(get_bool(object_, key), key, false, fallback);
}

std::string Config::text_or(std::string_view key, std::string fallback) {
  return take<std::string>(get_string(object_, key), key, false, std::move(fallback));
}

std::vector<double> Config::numbers(std::string_view key, double null) {
  std::vector<double> out;
  const json::value* value = find(key);
  if (value == nullptr) return out;
  if (value->is_number()) return {value->to_number<double>()};
  const json::array* list = value->if_array();
  if (list == nullptr) {
    fail(fmt::format("'{}' must be a list", spelled(key)));
    return out;
  }
  for (const json::value& item : *list) {
    const bool endless = item == json::object{{"__float__", "Infinity"}};  // as transformers writes it
    if (!item.is_bool() && !item.is_number() && !item.is_null() && !endless) {
      fail(fmt::format("'{}' holds something that is not a number", spelled(key)));
      return {};
    }
    out.push_back(endless          ? std::numeric_limits<double>::infinity()
                  : item.is_null() ? null
                  : item.is_bool() ? static_cast<double>(item.get_bool())
                                   : item.to_number<double>());
  }
  return out;
}

std::vector<int> Config::take_sizes(std::string_view key) {
  const json::value* value = find(key);
  if (value == nullptr || !value->is_array()) return {};
  std::vector<int> sizes;
  for (double size : numbers(key)) {
    if (!(size >= 0 && size <= kMaxSize)) {
      fail(fmt::format("'{}' holds {}, must be 0 to {}", spelled(key), size, kMaxSize));
      return {};
    }
    sizes.push_back(static_cast<int>(size));
  }
  drop(key);
  if (!sizes.empty()) assume(key, sizes.front());
  return sizes;
}

std::vector<std::string> Config::texts(std::string_view key) {
  std::vector<std::string> out;
  const json::value* value = find(key);
  if (value == nullptr || !value->is_array()) return out;
  for (const json::value& item : value->get_array()) {
    if (!item.is_string()) {
      fail(fmt::format("'{}' holds something that is not a string", key));
      return {};
    }
    out.emplace_back(item.get_string());
  }
  return out;
}

Config Config::sub(std::string_view key) {
  Config inner = *this;  // shares the status
  inner.what_ = fmt::format("{}: {}", what_, key);
  inner.object_ = {};
  const json::value* value = find(key);
  if (value == nullptr) return inner;
  if (!value->is_object()) {
    fail(fmt::format("'{}' must be an object", key));
    return inner;
  }
  inner.object_ = value->get_object();
  return inner;
}

namespace {

constexpr size_t kConfigBytes = size_t{16} << 20;

}  // namespace

Result<std::string> read_small_file(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
    return Error{ErrorCode::NotFound, fmt::format("{}: no such file", path)};
  if (static_cast<size_t>(status.st_size) > kConfigBytes)
    return Error{ErrorCode::LimitExceeded,
                 fmt::format("{}: {} bytes, limit {}", path, status.st_size, kConfigBytes)};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Error{ErrorCode::Io, fmt::format("{}: cannot be read", path)};
  return text.str();
}

Result<json::object> read_config_file(const std::string& path) {
  Result<std::string> text = read_small_file(path);
  if (!text) return text.error();
  Result<json::value> value = parse_published_json(*text, path);
  if (!value) return value.error();
  if (!value->is_object()) return Error{ErrorCode::Corrupt, path + ": not an object"};
  return std::move(value->as_object());
}

}  // namespace sluice::models

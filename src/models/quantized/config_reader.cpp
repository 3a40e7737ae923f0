#include "models/quantized/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace sluice::models {

Error refused_config(std::string message) {
  return {ErrorCode::Unsupported, "quantization_config: " + std::move(message)};
}

std::string shown(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > 80) text.replace(80, std::string::npos, "...");
  return text;
}

template <class T>
T ConfigReader::take(Result<std::optional<T>> found, T fallback) {
  if (!found) fail(found.error().message);
  return found && found->has_value() ? **found : fallback;
}

void ConfigReader::fail(std::string message) {
  if (problem_.empty()) problem_ = std::move(message);
}

const json::value* ConfigReader::find(std::string_view key) const {
  const json::value* value = object_.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

int64_t ConfigReader::integer(std::string_view key, int64_t fallback) {
  return take(get_int(object_, key), fallback);
}

bool ConfigReader::flag(std::string_view key, bool fallback) {
  return take(get_bool(object_, key), fallback);
}

std::string ConfigReader::text(std::string_view key, std::string fallback) {
  return take(get_string(object_, key), std::move(fallback));
}

std::vector<ModuleTarget> ConfigReader::targets(std::string_view key) {
  const json::value* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    fail(fmt::format("'{}' is {}, must be a list of names", key, shown(*value)));
    return {};
  }
  std::vector<ModuleTarget> out;
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

int ConfigReader::group_size(std::string_view key) {
  const int64_t size = integer(key, -1);
  if (size == -1) return 0;
  if (size < 1 || size > kLargestGroup) {
    fail(fmt::format("'{}' is {}, must be -1 or 1 to {}", key, size, kLargestGroup));
    return 0;
  }
  return static_cast<int>(size);
}

int ConfigReader::bits(std::string_view key, std::initializer_list<int> known) {
  const int64_t bits = integer(key, 0);
  if (std::find(known.begin(), known.end(), bits) != known.end()) return static_cast<int>(bits);
  fail(fmt::format("'{}' is {}, must be {}", key, bits, fmt::join(known, " or ")));
  return *known.begin();
}

std::string ConfigReader::word(std::string_view key, std::string fallback,
                               std::initializer_list<std::string_view> known) {
  const std::string written = text(key, std::move(fallback));
  std::string word = written;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::find(known.begin(), known.end(), word) == known.end())
    fail(fmt::format("'{}' is '{}', must be '{}'", key, written, fmt::join(known, "' or '")));
  return word;
}

std::pair<int, int> ConfigReader::block(std::string_view key) {
  const json::value* value = find(key);
  if (value == nullptr) return {0, 0};
  int64_t sides[2] = {0, 0};
  if (const json::array* array = value->if_array(); array != nullptr && array->size() == 2) {
    for (size_t i = 0; i < 2; ++i) sides[i] = (*array)[i].is_int64() ? (*array)[i].get_int64() : 0;
  } else if (const json::string* text = value->if_string(); text != nullptr) {
    const char* end = text->data() + text->size();
    const auto first = std::from_chars(text->data(), end, sides[0]);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != 'x' ||
        std::from_chars(first.ptr + 1, end, sides[1]).ptr != end)
      sides[0] = 0;
  }
  for (const int64_t side : sides)
    if (side < 1 || side > kLargestGroup) {
      fail(fmt::format("'{}' is {}, must be two sizes of 1 to {}", key, shown(*value), kLargestGroup));
      return {0, 0};
    }
  return {static_cast<int>(sides[0]), static_cast<int>(sides[1])};
}

}  // namespace sluice::models

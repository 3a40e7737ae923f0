#include <fmt/format.h>

#include "formats/gguf/gguf.h"
#include "formats/quote.h"

namespace sluice::formats {

namespace {

std::string describe(const GgufArray& array) {
  constexpr const char* kNames[] = {"integers", "floats", "strings"};
  const size_t size = std::visit([](const auto& items) { return items.size(); }, array);
  return fmt::format("an array of {} {}", size, kNames[array.index()]);
}

std::string describe(const GgufValue& value) {
  struct Describe {
    std::string operator()(bool truth) const { return truth ? "true" : "false"; }
    std::string operator()(std::string_view text) const { return "the string " + quote(text); }
    std::string operator()(const GgufArray& array) const { return describe(array); }
    std::string operator()(int64_t number) const { return fmt::to_string(number); }
    std::string operator()(uint64_t number) const { return fmt::to_string(number); }
    std::string operator()(double number) const { return fmt::format("the float {}", number); }
  };
  return std::visit(Describe{}, value);
}

Error wrong_kind(std::string_view key, const GgufValue& value, std::string_view wanted) {
  return {ErrorCode::Corrupt, fmt::format("{} is {}, must be {}", quote(key), describe(value), wanted)};
}

}  // namespace

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto entry = values_.find(key);
  return entry == values_.end() ? nullptr : &entry->second;
}

Result<std::optional<int64_t>> GgufMetadata::get_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (const auto* number = std::get_if<int64_t>(value)) return std::optional(*number);
  return wrong_kind(key, *value, "an integer below 2^63");
}

Result<std::optional<double>> GgufMetadata::get_number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto* number = std::get_if<double>(value)) return std::optional(*number);
  if (const auto* number = std::get_if<int64_t>(value)) return std::optional(static_cast<double>(*number));
  if (const auto* number = std::get_if<uint64_t>(value)) return std::optional(static_cast<double>(*number));
  return wrong_kind(key, *value, "a number");
}

Result<std::optional<bool>> GgufMetadata::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* truth = std::get_if<bool>(value)) return std::optional(*truth);
  return wrong_kind(key, *value, "true or false");
}

Result<std::optional<std::string_view>> GgufMetadata::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (const auto* text = std::get_if<std::string_view>(value)) return std::optional(*text);
  return wrong_kind(key, *value, "a string");
}

template <class T>
Result<const std::vector<T>*> GgufMetadata::get_array(std::string_view key, std::string_view wanted) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (const auto* array = std::get_if<GgufArray>(value)) {
    if (const auto* items = std::get_if<std::vector<T>>(array)) return items;
  }
  return wrong_kind(key, *value, wanted);
}

Result<const std::vector<int64_t>*> GgufMetadata::get_ints(std::string_view key) const {
  return get_array<int64_t>(key, "an array of integers");
}

Result<const std::vector<double>*> GgufMetadata::get_numbers(std::string_view key) const {
  return get_array<double>(key, "an array of floats");
}

Result<const std::vector<std::string_view>*> GgufMetadata::get_strings(std::string_view key) const {
  return get_array<std::string_view>(key, "an array of strings");
}

}  // namespace sluice::formats

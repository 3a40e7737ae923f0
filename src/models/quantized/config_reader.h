// Keys of a quantization_config, read with errors that name the key, its value and what is known.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "models/quantized/module_target.h"

namespace sluice::models {

constexpr int kLargestGroup = 1 << 20;

Error refused_config(std::string message);

// The value as text for a message, cut off where it is long.
std::string shown(const json::value& value);

// Keeps the first problem. A key that is missing or null gives what the caller says instead. Keeps a reference to the object.
class ConfigReader {
 public:
  explicit ConfigReader(const json::object& object) : object_(object) {}

  const json::object& object() const { return object_; }
  const json::value* find(std::string_view key) const;  // null: missing or null
  int64_t integer(std::string_view key, int64_t fallback);
  bool flag(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string fallback);
  std::vector<ModuleTarget> targets(std::string_view key);
  // -1 and nothing mean that there are no groups: 0.
  int group_size(std::string_view key = "group_size");
  int bits(std::string_view key, std::initializer_list<int> known);
  // One of the known words, in lower case.
  std::string word(std::string_view key, std::string fallback, std::initializer_list<std::string_view> known);
  // Two sizes, as [128, 128] or "128x128"; {0, 0} without the key.
  std::pair<int, int> block(std::string_view key);

  void fail(std::string message);
  // Empty: none.
  const std::string& problem() const { return problem_; }

 private:
  template <class T>
  T take(Result<std::optional<T>> found, T fallback);

  const json::object& object_;
  std::string problem_;
};

}  // namespace sluice::models

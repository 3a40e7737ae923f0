// Typed reading of a JSON object that keeps the first problem, so that a reader is a list of fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"

namespace sluice::api {

class Fields {
 public:
  explicit Fields(const json::object& object) : object_(object) {}

  // A missing field or null gives nullopt; a value of another kind is the problem.
  std::optional<int> integer(std::string_view name);  // within int
  std::optional<uint64_t> seed(std::string_view name);
  std::optional<double> number(std::string_view name);
  std::optional<bool> flag(std::string_view name);
  std::optional<std::string> text(std::string_view name);
  // A string or a list of strings.
  std::optional<std::vector<std::string>> texts(std::string_view name);
  std::optional<std::vector<Token>> tokens(std::string_view name);
  // nullptr where missing or null
  const json::value* find(std::string_view name) const;

  // Sets the target where the field is there.
  template <class T, class Value>
  static void set(T& target, const std::optional<Value>& value) {
    if (value) target = *value;
  }

  void fail(std::string message);
  const Status& status() const { return status_; }

 private:
  template <class T>
  std::optional<T> take(Result<std::optional<T>> found);

  const json::object& object_;
  Status status_;
};

}  // namespace sluice::api

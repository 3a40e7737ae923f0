// Typed fields of a JSON object that was read from a file, with the first thing that is wrong with them.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace sluice::tokenizer {

class JsonFields {
 public:
  // `what` names the object in errors ("pre_tokenizer Split").
  JsonFields(const json::object& object, std::string_view what) : object_(object), what_(what) {}

  // The value, or `otherwise` where it is missing or null, and after an error.
  bool flag(std::string_view key, bool otherwise) { return read(get_bool(object_, key), otherwise); }
  int64_t integer(std::string_view key, int64_t otherwise) { return read(get_int(object_, key), otherwise); }
  std::string text(std::string_view key, std::string_view otherwise) {
    return read(get_string(object_, key), std::string(otherwise));
  }
  // nullptr where the key is missing or null, or is of another kind, which is an error.
  const json::object* object(std::string_view key);
  const json::array* array(std::string_view key);
  // nullptr where the key is missing or null.
  const json::value* value(std::string_view key) const;

  // The first error of the look-ups so far.
  const Status& status() const { return status_; }
  void fail(std::string message);

 private:
  template <class T>
  T read(Result<std::optional<T>> found, T otherwise) {
    if (found.ok()) return std::move(*found).value_or(std::move(otherwise));
    fail(found.error().message);
    return otherwise;
  }

  const json::object& object_;
  std::string what_;
  Status status_;
};

}  // namespace sluice::tokenizer

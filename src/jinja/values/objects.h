// Objects that templates can hold: methods and functions as values, namespaces, cyclers, joiners.
#pragma once

#include <string>
#include <vector>

#include "jinja/runtime.h"

namespace sluice::jinja {

// object.method, not called yet
class BoundMethod : public Object {
 public:
  BoundMethod(Value self, const NamedCall& method) : self_(std::move(self)), method_(method) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override;

 private:
  Value self_;
  const NamedCall& method_;
};

class GlobalFunction : public Object {
 public:
  explicit GlobalFunction(const NamedCall& function) : function_(function) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    return function_.call(runtime, Value(), arguments);
  }

 private:
  const NamedCall& function_;
};

// The one thing a template can assign to: {% set ns.name = value %}.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
  std::optional<Text> print(Runtime& runtime, size_t depth) override;
  void set(Runtime& runtime, std::string_view name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

// Gives its items in turn.
class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
  Value next();
  Value current() const { return items_[position_]; }
  void reset() { position_ = 0; }

 private:
  std::vector<Value> items_;  // at least one
  size_t position_ = 0;
};

// Prints nothing the first time it is called, and its separator from then on.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override;

 private:
  Value separator_;
  bool used_ = false;
};

}  // namespace sluice::jinja

// Objects that run parts of the template: the `loop` of a for statement, and macros.
#pragma once

#include "jinja/interpreter.h"

namespace sluice::jinja {

// Where a loop came from, for calling it again: {{ loop(children) }}.
struct LoopOrigin {
  Interpreter* interpreter;
  const ForStatement* statement;  // null where the loop is not recursive
  Scope* outer;
  size_t depth;  // 1 for the outermost
};

class Loop : public Object {
 public:
  Loop(Value items, LoopOrigin origin) : items_(std::move(items)), origin_(origin) {}

  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override;

  void set_index(size_t index) { index_ = index; }
  size_t index() const { return index_; }
  const Value& item() const { return items_.list().items[index_]; }
  // Whether the values differ from those of the last call.
  bool changed(Runtime& runtime, const std::vector<Value>& values);

 private:
  Value items_;  // a list
  LoopOrigin origin_;
  size_t index_ = 0;
  std::optional<std::vector<Value>> last_changed_;
};

class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const MacroDefinition& definition, Scope* closure)
      : interpreter_(interpreter), definition_(definition), closure_(closure) {}
  std::string_view type_name() const override { return "Macro"; }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Runtime&, const Arguments& arguments) override {
    return interpreter_.call_macro(definition_, closure_, arguments);
  }

 private:
  Interpreter& interpreter_;
  const MacroDefinition& definition_;
  Scope* closure_;
};

}  // namespace sluice::jinja

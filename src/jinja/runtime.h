// What filters, tests, methods and operators need of the rendering they run in.
#pragma once

#include <ctime>
#include <string_view>

#include "jinja/values/value.h"

namespace sluice::jinja {

class Runtime {
 public:
  // `interrupt` may be null.
  Runtime(const Limits& limits, std::tm now, Interrupt* interrupt = nullptr)
      : budget_(limits, interrupt), heap_(budget_), now_(now) {}

  Heap& heap() { return heap_; }
  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }
  // Nested evaluations open at this moment; see Limits::evaluation_depth.
  size_t& depth() { return depth_; }

  // object.name: a method or attribute first, then an item.
  Value attribute(const Value& object, std::string_view name);
  // object[key]: an item first, then a method or attribute.
  Value item(const Value& object, const Value& key);
  Value call(const Value& callee, const Arguments& arguments);
  // object.name(arguments), without making a value of the method
  Value call_method(const Value& object, std::string_view name, const Arguments& arguments);
  Value filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool test(std::string_view name, const Value& input, const Arguments& arguments);

  // str(value); a string is returned as it is.
  Value str(const Value& value);
  Value iterator(std::string_view type_name, std::vector<Value> items);

 private:
  std::optional<Value> own_attribute(const Value& object, std::string_view name);

  Budget budget_;
  Heap heap_;
  std::tm now_;
  size_t depth_ = 0;
};

using NativeCall = Value (*)(Runtime&, const Value& self, const Arguments&);
struct NamedCall {
  std::string_view name;
  NativeCall call;
};

// Arguments matched to parameter names. Fails on too many, repeated and unknown ones.
class Bound {
 public:
  Bound(const Arguments& arguments, std::string_view callee, std::initializer_list<std::string_view> names);

  const Value* find(size_t index) const { return values_[index]; }
  // Fails where the argument was not given.
  const Value& at(size_t index) const;
  Value get(size_t index, Value fallback) const {
    return values_[index] == nullptr ? fallback : *values_[index];
  }
  bool flag(size_t index, bool fallback) const;
  // None counts as not given.
  int64_t integer(size_t index, int64_t fallback) const;
  // Fails where the argument is not a string.
  const Text& text(size_t index) const;

 private:
  static constexpr size_t kMost = 6;
  std::string_view callee_;
  const Value* values_[kMost] = {};
};

// Methods of the kind of `self`; nullptr where there is none of that name.
const NamedCall* find_string_method(std::string_view name);
const NamedCall* find_list_method(std::string_view name, const List& list);
const NamedCall* find_map_method(std::string_view name);
// Methods that change their object, which the sandbox refuses.
bool is_mutating_method(const Value& object, std::string_view name);

const NamedCall* find_filter(std::string_view name);
using TestCall = bool (*)(Runtime&, const Value& input, const Arguments&);
TestCall find_test(std::string_view name);
// range, namespace, dict, ...; nullptr where there is none of that name. `self` of such a call is None.
const NamedCall* find_global(std::string_view name);

// The string form of a value is appended to `out`. `depth` counts nested containers.
void print(Runtime& runtime, const Value& value, TextBuilder& out, size_t depth = 0);
void print_repr(Runtime& runtime, const Value& value, TextBuilder& out, size_t depth = 0);
std::string format_float(double value);

Value arithmetic_add(Runtime& runtime, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);

// Position of the first `needle` at or after `from`, or npos. Linear in the length of both.
size_t find_bytes(std::string_view bytes, std::string_view needle, size_t from);

Text escape_html(Runtime& runtime, const Text& text);

}  // namespace sluice::jinja

#include "jinja/runtime.h"

#include <fmt/format.h>

#include "jinja/values/objects.h"
#include "jinja/values/operators.h"

namespace sluice::jinja {

namespace {

std::string describe_object(const Value& object) {
  return object.is_none() ? "None" : fmt::format("{} object", type_name(object));
}

const NamedCall* find_method(const Value& object, std::string_view name) {
  if (object.is_string()) return find_string_method(name);
  if (object.is_map()) return find_map_method(name);
  return object.is_list() ? find_list_method(name, object.list()) : nullptr;
}

Value call_native(Runtime& runtime, const Value& self, const NamedCall& method, const Arguments& arguments) {
  runtime.budget().step();
  if (self.is_string()) runtime.budget().step_bytes(self.text().size());
  Value result = method.call(runtime, self, arguments);
  if (!self.is_string() || !self.text().markup() || !result.is_string()) return result;
  Text text = result.text();
  text.set_markup(true);
  return runtime.heap().string(std::move(text));
}

Value unsafe_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  return runtime.heap().undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)));
}

bool is_dunder(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

}  // namespace

std::optional<Value> Runtime::own_attribute(const Value& object, std::string_view name) {
  if (const NamedCall* method = find_method(object, name)) {
    return Value(heap_.object<BoundMethod>(object, *method));
  }
  if (is_mutating_method(object, name) || is_dunder(name)) return unsafe_attribute(*this, object, name);
  if (object.is_list() && object.list().kind == ListKind::Group && (name == "grouper" || name == "list")) {
    return object.list().items[name == "grouper" ? 0 : 1];
  }
  if (object.is_object()) return object.object().attribute(*this, name);
  return std::nullopt;
}

Value Runtime::attribute(const Value& object, std::string_view name) {
  require_defined(object);
  if (std::optional<Value> own = own_attribute(object, name)) return *own;
  if (object.is_map()) {
    if (const Value* found = object.map().find(name)) return *found;
  }
  return heap_.undefined(
      fmt::format("'{}' has no attribute '{}'", describe_object(object), name.substr(0, 80)));
}

Value Runtime::item(const Value& object, const Value& key) {
  require_defined(object);
  if (object.is_map() && (key.is_string() || key.is_number() || key.is_none())) {
    if (const Value* found = object.map().find(key)) return *found;
  } else if (key.is_integral() && (object.is_list() || object.is_string())) {
    if (std::optional<Value> found = index_sequence(*this, object, key.integer())) return *found;
  }
  if (key.is_string()) {
    if (std::optional<Value> own = own_attribute(object, key.bytes())) return *own;
    return heap_.undefined(
        fmt::format("'{}' has no attribute '{}'", describe_object(object), key.bytes().substr(0, 80)));
  }
  if (key.is_integral()) {
    return heap_.undefined(fmt::format("{} has no element {}", describe_object(object), key.integer()));
  }
  return heap_.undefined(
      fmt::format("{} has no element of type '{}'", describe_object(object), type_name(key)));
}

Value Runtime::call(const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  if (!callee.is_object()) raise(fmt::format("'{}' object is not callable", type_name(callee)));
  return callee.object().call(*this, arguments);
}

Value Runtime::call_method(const Value& object, std::string_view name, const Arguments& arguments) {
  require_defined(object);
  if (const NamedCall* method = find_method(object, name))
    return call_native(*this, object, *method, arguments);
  return call(attribute(object, name), arguments);
}

Value Runtime::filter(std::string_view name, const Value& input, const Arguments& arguments) {
  const DepthGuard guard(depth_, budget_.limits().evaluation_depth, "nested evaluations");
  budget_.step();
  const NamedCall* filter = find_filter(name);
  if (filter == nullptr) raise(fmt::format("no filter named '{}'", name.substr(0, 40)));
  if (input.is_string()) budget_.step_bytes(input.text().size());
  return filter->call(*this, input, arguments);
}

bool Runtime::test(std::string_view name, const Value& input, const Arguments& arguments) {
  const DepthGuard guard(depth_, budget_.limits().evaluation_depth, "nested evaluations");
  budget_.step();
  const TestCall found = find_test(name);
  if (found == nullptr) raise(fmt::format("no test named '{}'", name.substr(0, 40)));
  return found(*this, input, arguments);
}

Value Runtime::str(const Value& value) {
  if (value.is_string()) return value;
  TextBuilder out(budget_);
  print(*this, value, out);
  return heap_.string(out.take());
}

Value Runtime::iterator(std::string_view type_name, std::vector<Value> items) {
  return Value(heap_.object<Iterator>(type_name, heap_.list(std::move(items))));
}

Value BoundMethod::call(Runtime& runtime, const Arguments& arguments) {
  return call_native(runtime, self_, method_, arguments);
}

}  // namespace sluice::jinja

#include <fmt/format.h>

#include <algorithm>

#include "jinja/runtime.h"

namespace sluice::jinja {

namespace {

Value map_get(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) raise("get() takes no keyword arguments");
  const Bound bound(arguments, "get", {"key", "default"});
  return contains(runtime, self, bound.at(0)) ? *self.map().find(bound.at(0)) : bound.get(1, Value());
}

Value map_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "items", {});
  std::vector<Value> items;
  for (const Map::Entry& entry : self.map().entries)
    items.push_back(runtime.heap().tuple({entry.key, entry.value}));
  return runtime.heap().list(std::move(items), ListKind::Items);
}

Value map_keys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "keys", {});
  std::vector<Value> keys;
  for (const Map::Entry& entry : self.map().entries) keys.push_back(entry.key);
  return runtime.heap().list(std::move(keys), ListKind::Keys);
}

Value map_values(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "values", {});
  std::vector<Value> values;
  for (const Map::Entry& entry : self.map().entries) values.push_back(entry.value);
  return runtime.heap().list(std::move(values), ListKind::Values);
}

// A copy of something that never changes is the thing itself.
Value container_copy(Runtime&, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "copy", {});
  return self;
}

Value list_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "index", {"value", "start", "stop"});
  const std::vector<Value>& items = self.list().items;
  const auto length = static_cast<int64_t>(items.size());
  const auto clamp = [&](int64_t at) {
    return std::min(std::max<int64_t>(at < 0 ? at + length : at, 0), length);
  };
  for (int64_t i = clamp(bound.integer(1, 0)); i < clamp(bound.integer(2, length)); ++i) {
    if (equals(items[static_cast<size_t>(i)], bound.at(0), runtime.budget())) return Value(i);
  }
  raise("the value is not in the list");
}

Value list_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(arguments, "count", {"value"});
  int64_t count = 0;
  for (const Value& item : self.list().items) count += equals(item, bound.at(0), runtime.budget()) ? 1 : 0;
  return Value(count);
}

constexpr NamedCall kMapMethods[] = {
    {"get", map_get},       {"items", map_items},     {"keys", map_keys},
    {"values", map_values}, {"copy", container_copy},
};
constexpr NamedCall kListMethods[] = {{"index", list_index}, {"count", list_count}, {"copy", container_copy}};

constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kMapMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <class Table>
const NamedCall* find_in(const Table& table, std::string_view name) {
  for (const NamedCall& method : table) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace

const NamedCall* find_map_method(std::string_view name) {
  return find_in(kMapMethods, name);
}

const NamedCall* find_list_method(std::string_view name, const List& list) {
  if (list.is_view() || (name == "copy" && list.kind != ListKind::List)) return nullptr;
  return find_in(kListMethods, name);
}

bool is_mutating_method(const Value& object, std::string_view name) {
  const auto named = [&](std::string_view other) { return other == name; };
  if (object.is_map()) return std::any_of(std::begin(kMapMutators), std::end(kMapMutators), named);
  return object.is_list() && object.list().kind == ListKind::List &&
         std::any_of(std::begin(kListMutators), std::end(kListMutators), named);
}

}  // namespace sluice::jinja

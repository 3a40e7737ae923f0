#include "jinja/values/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/values/unicode.h"

namespace sluice::jinja {

namespace {

int sign_of(int64_t a, int64_t b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return sign_of(a.integer(), b.integer());
  const double left = a.number();
  const double right = b.number();
  return left < right ? -1 : left > right ? 1 : 0;
}

// Keys of different families never meet: numbers, strings, None.
int key_family(const Value& key) {
  return key.is_number() ? 0 : key.is_string() ? 1 : 2;
}

int compare_keys(const Value& a, const Value& b) {
  const int family = key_family(a);
  if (family != key_family(b)) return family < key_family(b) ? -1 : 1;
  if (family == 0) return compare_numbers(a, b);
  return family == 1 ? a.bytes().compare(b.bytes()) : 0;
}

void require_hashable(const Value& key) {
  if (key.is_none() || key.is_number() || key.is_string()) return;
  require_defined(key);
  raise(fmt::format("a '{}' cannot be the key of a dict", type_name(key)));
}

// Sorts `order` by key; where a key repeats, the first entry takes the last value and the others go.
void index_entries(std::vector<Map::Entry>& entries, std::vector<uint32_t>& order) {
  const auto fill = [&] {
    order.resize(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) order[i] = static_cast<uint32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return compare_keys(entries[a].key, entries[b].key) < 0;
    });
  };
  fill();
  std::vector<bool> repeated(entries.size(), false);
  bool any = false;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    size_t last = i;
    while (last + 1 < order.size() &&
           compare_keys(entries[order[i]].key, entries[order[last + 1]].key) == 0) {
      repeated[order[++last]] = any = true;
    }
    if (last > i) entries[order[i]].value = entries[order[last]].value;
    i = last;
  }
  if (!any) return;
  std::vector<Map::Entry> kept;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!repeated[i]) kept.push_back(std::move(entries[i]));
  }
  entries = std::move(kept);
  fill();
}

size_t depth_of(const Value& value) {
  if (value.is_list()) return value.list().depth;
  return value.is_map() ? value.map().depth : 0;
}

bool equal_lists(const List& a, const List& b, Budget& budget) {
  if (a.is_tuple() != b.is_tuple() || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equals(a.items[i], b.items[i], budget)) return false;
  }
  return true;
}

bool equal_maps(const Map& a, const Map& b, Budget& budget) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const Map::Entry& entry : a.entries) {
    const Value* other = b.find(entry.key);
    if (other == nullptr || !equals(entry.value, *other, budget)) return false;
  }
  return true;
}

}  // namespace

const Text& Value::text() const {
  return std::get<std::shared_ptr<const String>>(data_)->text;
}

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_string()) return &text() == &other.text();
  if (is_list()) return &list() == &other.list();
  if (is_map()) return &map() == &other.map();
  return is_object() && &object() == &other.object();
}

const Value* Map::find(const Value& key) const {
  const auto found = std::lower_bound(
      order.begin(), order.end(), key,
      [&](uint32_t index, const Value& wanted) { return compare_keys(entries[index].key, wanted) < 0; });
  if (found == order.end() || compare_keys(entries[*found].key, key) != 0) return nullptr;
  return &entries[*found].value;
}

const Value* Map::find(std::string_view key) const {
  const auto compare_to = [&](const Value& other) {
    return other.is_string() ? other.bytes().compare(key) : key_family(other) - 1;
  };
  const auto found = std::lower_bound(order.begin(), order.end(), key, [&](uint32_t index, std::string_view) {
    return compare_to(entries[index].key) < 0;
  });
  if (found == order.end() || compare_to(entries[*found].key) != 0) return nullptr;
  return &entries[*found].value;
}

Heap::Heap(Budget& budget) : budget_(budget) {}
Heap::~Heap() = default;

namespace {

size_t nested_depth(size_t depth, size_t limit) {
  if (depth > limit) raise_limit("nesting of values", limit);
  return depth;
}

size_t depth_over(const std::vector<Value>& items) {
  size_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return nested_depth(depth + 1, Limits{}.depth);
}

size_t depth_over(const std::vector<Map::Entry>& entries) {
  size_t depth = 0;
  for (const Map::Entry& entry : entries) depth = std::max(depth, depth_of(entry.value));
  return nested_depth(depth + 1, Limits{}.depth);
}

constexpr size_t kEntryBytes = sizeof(Map::Entry) + sizeof(uint32_t);

}  // namespace

Value Heap::string(Text text) {
  const size_t bytes = text.size() + text.marks().size() * sizeof(ByteRange) + sizeof(String);
  budget_.step_bytes(bytes);
  return Value(std::shared_ptr<const String>(new String{std::move(text), Charge(budget_, bytes)}));
}

Value Heap::list(std::vector<Value> items, ListKind kind) {
  const size_t bytes = items.size() * sizeof(Value) + sizeof(List);
  const size_t depth = depth_over(items);
  budget_.step_bytes(bytes);
  return Value(std::shared_ptr<const List>(new List{kind, std::move(items), depth, Charge(budget_, bytes)}));
}

Value Heap::map(std::vector<Map::Entry> entries) {
  for (const Map::Entry& entry : entries) require_hashable(entry.key);
  const size_t bytes = entries.size() * kEntryBytes + sizeof(Map);
  const size_t depth = depth_over(entries);
  budget_.step_bytes(bytes);
  std::vector<uint32_t> order;
  index_entries(entries, order);
  return Value(std::shared_ptr<const Map>(
      new Map{std::move(entries), std::move(order), depth, Charge(budget_, bytes)}));
}

Value Heap::undefined(std::string reason) const {
  return Undefined{std::make_shared<const std::string>(std::move(reason))};
}

Value make_string(Text text) {
  return Value(std::shared_ptr<const String>(new String{std::move(text), {}}));
}

Value make_list(std::vector<Value> items, ListKind kind) {
  const size_t depth = depth_over(items);
  return Value(std::shared_ptr<const List>(new List{kind, std::move(items), depth, {}}));
}

Value make_map(std::vector<Map::Entry> entries) {
  const size_t depth = depth_over(entries);
  std::vector<uint32_t> order;
  index_entries(entries, order);
  return Value(std::shared_ptr<const Map>(new Map{std::move(entries), std::move(order), depth, {}}));
}

Value Object::call(Runtime&, const Arguments&) {
  raise(fmt::format("'{}' object is not callable", type_name()));
}

std::vector<Value> Iterator::take_rest() {
  const std::vector<Value>& items = items_.list().items;
  std::vector<Value> rest(items.begin() + static_cast<std::ptrdiff_t>(next_), items.end());
  next_ = items.size();
  return rest;
}

std::optional<Value> Iterator::take_one() {
  const std::vector<Value>& items = items_.list().items;
  if (next_ == items.size()) return std::nullopt;
  return items[next_++];
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.is_string()) return value.text().markup() ? "Markup" : "str";
  if (value.is_map()) return "dict";
  if (value.is_object()) return value.object().type_name();
  switch (value.list().kind) {
    case ListKind::List:
      return "list";
    case ListKind::Tuple:
    case ListKind::Group:
      return "tuple";
    case ListKind::Range:
      return "range";
    case ListKind::Keys:
      return "dict_keys";
    case ListKind::Values:
      return "dict_values";
    case ListKind::Items:
      return "dict_items";
  }
  return "list";
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_bool()) return value.boolean();
  if (value.is_int()) return value.integer() != 0;
  if (value.is_float()) return value.number() != 0;
  if (value.is_string()) return !value.text().empty();
  if (value.is_list()) return !value.list().items.empty();
  if (value.is_map()) return !value.map().entries.empty();
  return true;
}

void require_defined(const Value& value) {
  if (value.is_undefined()) raise(value.undefined_reason());
}

bool equals(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.same_as(b)) return true;
  if (a.is_string() && b.is_string()) {
    if (a.bytes().size() == b.bytes().size()) budget.step_bytes(a.bytes().size());
    return a.bytes() == b.bytes();
  }
  if (a.is_list() && b.is_list()) return equal_lists(a.list(), b.list(), budget);
  return a.is_map() && b.is_map() && equal_maps(a.map(), b.map(), budget);
}

int compare(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    budget.step_bytes(a.bytes().size());
    return a.bytes().compare(b.bytes());
  }
  if (a.is_list() && b.is_list() && a.list().kind == b.list().kind && !a.list().is_view()) {
    const std::vector<Value>& left = a.list().items;
    const std::vector<Value>& right = b.list().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equals(left[i], right[i], budget)) return compare(left[i], right[i], budget);
    }
    return sign_of(static_cast<int64_t>(left.size()), static_cast<int64_t>(right.size()));
  }
  raise(fmt::format("'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b)));
}

bool is_iterable(const Value& value) {
  if (value.is_object()) return dynamic_cast<Iterator*>(&value.object()) != nullptr;
  return value.is_undefined() || value.is_string() || value.is_list() || value.is_map();
}

std::vector<Value> items_of(Heap& heap, const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_list()) {
    heap.budget().step_bytes(value.list().items.size() * sizeof(Value));
    return value.list().items;
  }
  std::vector<Value> items;
  if (value.is_map()) {
    for (const Map::Entry& entry : value.map().entries) items.push_back(entry.key);
    return items;
  }
  if (value.is_string()) {
    const Text& text = value.text();
    for (size_t i = 0; i < text.size();) {
      const size_t end = i + decode_at(text.view(), i).length;
      Text character;
      character.append(text, {i, end});
      items.push_back(heap.string(std::move(character)));
      i = end;
    }
    return items;
  }
  if (value.is_object()) {
    if (auto* iterator = dynamic_cast<Iterator*>(&value.object())) return iterator->take_rest();
  }
  raise(fmt::format("'{}' object is not iterable", type_name(value)));
}

std::optional<int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return static_cast<int64_t>(count_code_points(value.bytes()));
  if (value.is_list()) return static_cast<int64_t>(value.list().items.size());
  if (value.is_map()) return static_cast<int64_t>(value.map().entries.size());
  return std::nullopt;
}

int64_t require_integer(const Value& value, std::string_view what) {
  if (value.is_integral()) return value.integer();
  require_defined(value);
  raise(fmt::format("{} must be an integer, not '{}'", what, type_name(value)));
}

}  // namespace sluice::jinja

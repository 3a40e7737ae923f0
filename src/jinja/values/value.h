// Values of the template language. Strings, lists and maps never change once made (the sandbox that templates
// are written for forbids the methods that would change them) and are shared by reference count. Things with
// identity or state (namespaces, macros, loops, iterators) are Objects, owned by the Heap of their rendering.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/values/text.h"

namespace sluice::jinja {

class Object;
class Value;
struct String;
struct List;
struct Map;

struct None {};

// The missing thing: prints as nothing, is false, and fails when anything is asked of it.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(None) : data_(None{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  Value(std::shared_ptr<const String> string) : data_(std::move(string)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Map> map) : data_(std::move(map)) {}
  explicit Value(Object* object) : data_(object) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  // A bool is a number, as in Python.
  bool is_integral() const { return is_int() || is_bool(); }
  bool is_number() const { return is_integral() || is_float(); }
  bool is_string() const { return std::holds_alternative<std::shared_ptr<const String>>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const List>>(data_); }
  bool is_map() const { return std::holds_alternative<std::shared_ptr<const Map>>(data_); }
  bool is_object() const { return std::holds_alternative<Object*>(data_); }

  // REQUIRES: the value is of that kind
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return is_bool() ? static_cast<int64_t>(boolean()) : std::get<int64_t>(data_); }
  double number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }
  const Text& text() const;
  const std::string& bytes() const { return text().bytes(); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const Map& map() const { return *std::get<std::shared_ptr<const Map>>(data_); }
  Object& object() const { return *std::get<Object*>(data_); }
  // What the error of using an undefined value says.
  const std::string& undefined_reason() const { return *std::get<Undefined>(data_).reason; }

  // The same string, list, map or object, not an equal one.
  bool same_as(const Value& other) const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const String>,
               std::shared_ptr<const List>, std::shared_ptr<const Map>, Object*>
      data_;
};

// Bytes taken from a budget, given back when the owner goes.
class Charge {
 public:
  Charge() = default;
  Charge(Budget& budget, size_t bytes) : budget_(&budget), bytes_(bytes) { budget.charge(bytes); }
  ~Charge() {
    if (budget_ != nullptr) budget_->refund(bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  Budget* budget_ = nullptr;
  size_t bytes_ = 0;
};

struct String {
  Text text;
  Charge charge;
};

// How Python would name a sequence: it decides how the list prints and whether it can be indexed.
// Group is a pair made by groupby, a tuple whose items also have names.
enum class ListKind : uint8_t { List, Tuple, Group, Range, Keys, Values, Items };

struct List {
  ListKind kind = ListKind::List;
  std::vector<Value> items;
  size_t depth = 1;
  Charge charge;

  bool is_tuple() const { return kind == ListKind::Tuple || kind == ListKind::Group; }
  bool is_view() const {
    return kind == ListKind::Keys || kind == ListKind::Values || kind == ListKind::Items;
  }
};

struct Map {
  struct Entry {
    Value key;  // None, bool, int, float or string
    Value value;
  };
  std::vector<Entry> entries;   // in order of insertion
  std::vector<uint32_t> order;  // indices of entries by key, for look-up
  size_t depth = 1;
  Charge charge;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

// Makes values, charges them to the budget and owns the objects of one rendering. A Heap without a budget
// makes the values that outlive a rendering (literals) or come from the caller (variables).
class Heap {
 public:
  explicit Heap(Budget& budget);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Budget& budget() { return budget_; }

  Value string(Text text);
  Value string(std::string_view bytes, bool user = false) { return string(Text(std::string(bytes), user)); }
  Value list(std::vector<Value> items, ListKind kind = ListKind::List);
  Value tuple(std::vector<Value> items) { return list(std::move(items), ListKind::Tuple); }
  // A repeated key keeps its first place and takes its last value. Fails on a key that has no hash.
  Value map(std::vector<Map::Entry> entries);
  Value undefined(std::string reason) const;

  template <class T, class... Arguments>
  T* object(Arguments&&... arguments) {
    budget_.charge(sizeof(T) + 64);
    auto owned = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    T* made = owned.get();
    objects_.push_back(std::move(owned));
    return made;
  }

 private:
  Budget& budget_;
  std::vector<std::unique_ptr<Object>> objects_;
};

// Values without a budget: literals of a template and variables of the caller.
Value make_string(Text text);
Value make_list(std::vector<Value> items, ListKind kind = ListKind::List);
Value make_map(std::vector<Map::Entry> entries);

class Runtime;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Something with identity or state.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  // nullopt where there is no such attribute
  virtual std::optional<Value> attribute(Runtime&, std::string_view) { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Runtime&, const Arguments&);
  // Prints as `<type_name>` unless it has a form of its own.
  virtual std::optional<Text> print(Runtime&, size_t /*depth*/) { return std::nullopt; }
};

// What a generator of Python is: items that can be taken once.
class Iterator : public Object {
 public:
  Iterator(std::string_view type_name, Value items) : type_name_(type_name), items_(std::move(items)) {}
  std::string_view type_name() const override { return type_name_; }
  std::vector<Value> take_rest();
  std::optional<Value> take_one();

 private:
  std::string_view type_name_;
  Value items_;  // a list
  size_t next_ = 0;
};

// The name Python gives the kind of a value: "str", "NoneType", "dict".
std::string_view type_name(const Value& value);
bool is_true(const Value& value);
// Fails where the value is undefined.
void require_defined(const Value& value);

bool equals(const Value& a, const Value& b, Budget& budget);
// Order of `<` for numbers, strings and sequences: negative, zero or positive. Other pairs fail.
int compare(const Value& a, const Value& b, Budget& budget);
// Both of one kind that `compare` can order, or fails naming `operation`.
// Every item of a value that `for` can walk; an iterator is used up. Fails where the value is not iterable.
std::vector<Value> items_of(Heap& heap, const Value& value);
bool is_iterable(const Value& value);
// Number of items or code points; nullopt where the value has no length.
std::optional<int64_t> length_of(const Value& value);
// Integer out of a value that Python would take as an index.
int64_t require_integer(const Value& value, std::string_view what);

}  // namespace sluice::jinja

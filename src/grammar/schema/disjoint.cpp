// Whether two lowered schemas exclude each other.
#include <algorithm>

#include "grammar/schema/lowering.h"

namespace sluice::grammar {

namespace {

std::string_view type_of(const json::object& schema) {
  const json::value* type = schema.if_contains("type");
  const json::value* comment = schema.if_contains("$comment");
  const bool assumed = comment != nullptr && comment->is_string() && comment->get_string() == kAssumed;
  return type == nullptr || !type->is_string() || assumed ? std::string_view()
                                                          : std::string_view(type->get_string());
}

std::string_view type_of_value(const json::value& value) {
  if (value.is_null()) return "null";
  if (value.is_bool()) return "boolean";
  if (value.is_string()) return "string";
  if (value.is_array()) return "array";
  if (value.is_object()) return "object";
  return is_whole(value) ? "integer" : "number";
}

bool is_numeric(std::string_view type) {
  return type == "integer" || type == "number";
}

bool types_differ(std::string_view a, std::string_view b) {
  return !a.empty() && !b.empty() && a != b && !(is_numeric(a) && is_numeric(b));
}

bool values_exclude(const json::array& values, const json::object& schema) {
  if (const json::value* others = schema.if_contains("enum")) {
    const json::array& options = others->get_array();
    return std::none_of(values.begin(), values.end(), [&](const json::value& value) {
      return std::any_of(options.begin(), options.end(),
                         [&](const json::value& one) { return same_value(one, value); });
    });
  }
  const std::string_view type = type_of(schema);
  return std::all_of(values.begin(), values.end(), [&](const json::value& value) {
    const std::string_view own = type_of_value(value);
    return types_differ(own, type) || (own == "number" && type == "integer");
  });
}

bool is_required(const json::object& schema, std::string_view name) {
  const json::value* required = schema.if_contains("required");
  if (required == nullptr) return false;
  const json::array& names = required->get_array();
  return std::any_of(names.begin(), names.end(),
                     [&](const json::value& one) { return one.get_string() == name; });
}

// Levels of required properties that are looked into: schemas may refer to themselves.
constexpr int kMostLevels = 4;

bool disjoint(const json::value& a, const json::value& b, const Resolve& resolve, int levels);

bool objects_exclude(const json::object& a, const json::object& b, const Resolve& resolve, int levels) {
  const json::value* ours = a.if_contains("properties");
  const json::value* theirs = b.if_contains("properties");
  if (ours == nullptr || theirs == nullptr || levels == 0) return false;
  for (const auto& property : ours->get_object()) {
    const json::value* other = theirs->get_object().if_contains(property.key());
    const bool in_both = other != nullptr && is_required(a, property.key()) && is_required(b, property.key());
    if (in_both && disjoint(property.value(), *other, resolve, levels - 1)) return true;
  }
  return false;
}

bool disjoint(const json::value& a, const json::value& b, const Resolve& resolve, int levels) {
  const json::value* left = resolve(a);
  const json::value* right = resolve(b);
  if (left == nullptr || right == nullptr || left == right) return false;
  const json::object* one = left->if_object();
  const json::object* other = right->if_object();
  if (one == nullptr || other == nullptr) return true;  // false: nothing fits
  if (const json::value* options = one->if_contains("anyOf")) {
    const json::array& all = options->get_array();
    return levels > 0 && std::all_of(all.begin(), all.end(), [&](const json::value& option) {
             return disjoint(option, *right, resolve, levels - 1);
           });
  }
  if (other->contains("anyOf")) return disjoint(*right, *left, resolve, levels);
  if (const json::value* values = one->if_contains("enum"))
    return values_exclude(values->get_array(), *other);
  if (const json::value* values = other->if_contains("enum"))
    return values_exclude(values->get_array(), *one);
  if (types_differ(type_of(*one), type_of(*other))) return true;
  return objects_exclude(*one, *other, resolve, levels);
}

}  // namespace

bool are_disjoint(const json::value& a, const json::value& b, const Resolve& resolve) {
  return disjoint(a, b, resolve, kMostLevels);
}

}  // namespace sluice::grammar

// Schemas without alternatives: arrays and objects.
#include <algorithm>
#include <limits>
#include <unordered_set>

#include "grammar/schema/lowering.h"

namespace sluice::grammar {

namespace {

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

// The schemas of the first items, and of those behind them; null where nothing is said.
struct ItemsOf {
  const json::array* prefix = nullptr;
  const json::value* rest = nullptr;
};

ItemsOf items_of(const Conjunct& part) {
  ItemsOf found;
  const json::value* items = keyword_of(part, "items");
  if (items != nullptr && items->is_array()) {
    found.prefix = &items->get_array();
    found.rest = keyword_of(part, "additionalItems");
  } else {
    const json::value* prefix = keyword_of(part, "prefixItems");
    found.prefix = prefix == nullptr ? nullptr : &prefix->get_array();
    found.rest = items;
  }
  if (found.rest == nullptr) found.rest = keyword_of(part, "unevaluatedItems");
  return found;
}

Conjunction item_at(const Conjunction& parts, size_t index) {
  Conjunction wanted;
  for (const Conjunct& part : parts) {
    const ItemsOf items = items_of(part);
    const bool in_prefix = items.prefix != nullptr && index < items.prefix->size();
    const json::value* schema = in_prefix ? &(*items.prefix)[index] : items.rest;
    if (schema != nullptr) wanted.push_back({schema});
  }
  return wanted;
}

}  // namespace

Result<json::value> Lowering::lower_array(const Conjunction& parts) {
  int64_t least = least_of(parts, "minItems"), most = most_of(parts, "maxItems");
  size_t fixed = 0;
  for (const Conjunct& part : parts) {
    const ItemsOf items = items_of(part);
    fixed = std::max(fixed, items.prefix == nullptr ? 0 : items.prefix->size());
    if (const json::value* unique = keyword_of(part, "uniqueItems");
        unique != nullptr && unique->get_bool() && most > 1)
      unheld("uniqueItems", part.schema);
    const json::value* contained = keyword_of(part, "minContains");
    const bool none_needed = contained != nullptr && count_of(*contained) == 0;
    if (keyword_of(part, "contains") != nullptr &&
        (!none_needed || keyword_of(part, "maxContains") != nullptr))
      unheld("contains", part.schema);
  }
  json::array prefix;
  for (size_t i = 0; i < fixed && static_cast<int64_t>(i) < most; ++i) {
    Result<json::value> item = lower(item_at(parts, i));
    if (!item) return item;
    if (item->is_bool())
      most = static_cast<int64_t>(i);
    else
      prefix.push_back(std::move(*item));
  }
  json::object out{{"type", "array"}};
  json::value rest = false;
  if (most > static_cast<int64_t>(prefix.size())) {
    Result<json::value> items = lower(item_at(parts, fixed));
    if (!items) return items;
    rest = std::move(*items);
  }
  if (rest.is_bool()) most = std::min(most, static_cast<int64_t>(prefix.size()));
  if (least > most) return json::value(false);
  if (!prefix.empty()) out["prefixItems"] = std::move(prefix);
  out["items"] = std::move(rest);
  const auto count = [&](std::string_view keyword, int64_t bound) {
    if (bound <= LoweringLimits::kRepetitions) {
      out[keyword] = bound;
      return;
    }
    for (const Conjunct& part : parts) {
      if (keyword_of(part, keyword) != nullptr) unheld(keyword, part.schema);
    }
  };
  if (least > 0) count("minItems", least);
  if (most != kUnbounded && !out["items"].is_bool()) count("maxItems", most);
  return json::value(std::move(out));
}

ObjectForm Lowering::object_form(const Conjunction& parts) const {
  ObjectForm form;
  std::unordered_set<std::string_view> named;
  const auto add = [&](std::vector<std::string>& names, std::string_view name, auto& seen) {
    if (seen.insert(name).second) names.emplace_back(name);
  };
  for (const Conjunct& part : parts) {
    if (const json::value* properties = keyword_of(part, "properties")) {
      for (const auto& property : properties->get_object()) add(form.names, property.key(), named);
    }
    if (const json::value* required = keyword_of(part, "required")) {
      for (const json::value& name : required->get_array())
        add(form.required, name.get_string(), form.is_required);
    }
    const json::value* patterns = keyword_of(part, "patternProperties");
    form.has_patterns = form.has_patterns || (patterns != nullptr && !patterns->get_object().empty());
    form.says_of_others = form.says_of_others || keyword_of(part, "additionalProperties") != nullptr ||
                          keyword_of(part, "unevaluatedProperties") != nullptr;
  }
  for (const std::string& name : form.required) add(form.names, name, named);
  return form;
}

Conjunction Lowering::property_of(const Conjunction& parts, std::string_view name) const {
  Conjunction wanted;
  for (const Conjunct& part : parts) {
    const size_t before = wanted.size();
    const json::value* properties = keyword_of(part, "properties");
    const json::value* own = properties == nullptr ? nullptr : properties->get_object().if_contains(name);
    if (own != nullptr) wanted.push_back({own});
    if (const json::value* patterns = keyword_of(part, "patternProperties")) {
      for (const auto& pattern : patterns->get_object()) {
        const Result<bool> matches = document_->regex(pattern.key()).search(name);
        if (matches && *matches) wanted.push_back({&pattern.value()});
      }
    }
    const json::value* others = keyword_of(part, "additionalProperties");
    if (wanted.size() == before && others != nullptr) wanted.push_back({others});
  }
  return wanted;
}

Conjunction Lowering::others_of(const Conjunction& parts) const {
  Conjunction wanted;
  for (const Conjunct& part : parts) {
    const json::value* others = keyword_of(part, "additionalProperties");
    if (others == nullptr) others = keyword_of(part, "unevaluatedProperties");
    if (others != nullptr) wanted.push_back({others});
  }
  return wanted;
}

Result<bool> Lowering::name_fits(const Conjunction& parts, std::string_view name) const {
  for (const Conjunct& part : parts) {
    const json::value* names = keyword_of(part, "propertyNames");
    if (names == nullptr) continue;
    const Result<bool> fits = validator_.fits(json::value(name), *names);
    if (!fits || !*fits) return fits;
  }
  return true;
}

// Fills properties and required. `possible` becomes false where a required one cannot be.
Status Lowering::lower_properties(const Conjunction& parts, const ObjectForm& form, json::object& out,
                                  bool& possible) {
  json::object properties;
  json::array required;
  bool forbids = false;
  for (const std::string& name : form.names) {
    const bool is_required = form.is_required.contains(name);
    Result<bool> fits = name_fits(parts, name);
    if (!fits) return fits.error();
    Result<json::value> property =
        *fits ? lower(property_of(parts, name)) : Result<json::value>(json::value(false));
    if (!property) return property.error();
    if (property->is_bool()) {
      const Conjunction wanted = property_of(parts, name);
      const bool is_false = std::any_of(wanted.begin(), wanted.end(), [](const Conjunct& one) {
        return one.schema->is_bool() && !one.schema->get_bool();
      });
      if (is_false || options_.closed_objects)
        forbids = true;
      else
        unheld("properties", parts.front().schema);
      possible = possible && !is_required;
      continue;
    }
    properties[name] = std::move(*property);
    if (is_required) required.emplace_back(name);
  }
  // The grammar cannot name what others may not be called.
  if (forbids) out["additionalProperties"] = false;
  if (!properties.empty()) out["properties"] = std::move(properties);
  if (!required.empty()) out["required"] = std::move(required);
  return {};
}

Result<json::value> Lowering::lower_object(const Conjunction& parts) {
  const ObjectForm form = object_form(parts);
  json::object out{{"type", "object"}};
  const int64_t least = least_of(parts, "minProperties"), most = most_of(parts, "maxProperties");
  if (least > most) return json::value(false);
  const auto count = [&](std::string_view keyword, int64_t bound) {
    if (bound <= 1'000) {
      out[keyword] = bound;
      return;
    }
    for (const Conjunct& part : parts) {
      if (keyword_of(part, keyword) != nullptr) unheld(keyword, part.schema);
    }
  };
  if (least > 0) count("minProperties", least);
  if (most != kUnbounded) count("maxProperties", most);
  if (form.names.empty())
    return form.has_patterns ? lower_patterns(parts, std::move(out))
                             : lower_free_object(parts, std::move(out));
  bool possible = true;
  if (Status done = lower_properties(parts, form, out, possible); !done) return done.error();
  if (!possible || static_cast<int64_t>(form.required.size()) > most) return json::value(false);
  if (!out.contains("properties")) out["properties"] = json::object{};
  const bool has_names_rule = std::any_of(parts.begin(), parts.end(), [](const Conjunct& part) {
    return keyword_of(part, "propertyNames") != nullptr;
  });
  const auto named = static_cast<int64_t>(out["properties"].get_object().size());
  const bool closes = options_.closed_objects && !form.says_of_others && least <= named;
  const bool has_rules = form.has_patterns || has_names_rule;
  if (closes || (has_rules && options_.closed_objects)) out["additionalProperties"] = false;
  if (!out.contains("additionalProperties") && has_rules) {
    // The grammar knows no rules beside names.
    unheld(form.has_patterns ? "patternProperties" : "propertyNames", parts.front().schema);
    out["additionalProperties"] = json::object{};
  }
  if (!out.contains("additionalProperties")) {
    Result<json::value> others = lower(others_of(parts));
    if (!others) return others;
    out["additionalProperties"] = std::move(*others);
  }
  const bool closed = out["additionalProperties"].is_bool();
  if (closed && least > named) return json::value(false);
  if (closed && named == 0) {
    out.erase("properties");
    return json::value{{"enum", json::array{json::object{}}}};
  }
  return json::value(std::move(out));
}

// No property is named: any that the patterns and additionalProperties allow.
Result<json::value> Lowering::lower_patterns(const Conjunction& parts, json::object out) {
  json::object patterns;
  const json::value* first = nullptr;
  bool exact = true;
  const Conjunction others = others_of(parts);
  const bool is_closed = std::any_of(others.begin(), others.end(), [](const Conjunct& one) {
    return one.schema->is_bool() && !one.schema->get_bool();
  });
  if (!is_closed && !options_.closed_objects) {
    unheld("patternProperties", parts.front().schema);
    out["additionalProperties"] = json::object{};
    return json::value(std::move(out));
  }
  for (const Conjunct& part : parts) {
    const json::value* given = keyword_of(part, "patternProperties");
    if (given == nullptr) continue;
    exact = exact && first == nullptr && given->get_object().size() == 1;
    if (first == nullptr) first = part.schema;
    for (const auto& pattern : given->get_object()) {
      Result<json::value> property = lower({Conjunct{&pattern.value()}});
      if (!property) return property;
      const std::string whole = as_whole_match(pattern.key());
      exact = exact && !whole.empty();
      if (!property->is_bool() && !whole.empty()) patterns[whole] = std::move(*property);
    }
  }
  for (const Conjunct& part : parts) {
    if (keyword_of(part, "propertyNames") != nullptr) unheld("propertyNames", part.schema);
  }
  if (!exact) unheld("patternProperties", first);
  if (patterns.empty()) {
    if (least_of(parts, "minProperties") > 0) return json::value(false);
    return json::value{{"enum", json::array{json::object{}}}};
  }
  out["patternProperties"] = std::move(patterns);
  out["additionalProperties"] = false;
  return json::value(std::move(out));
}

// A lowered schema of strings with what it refers to in its place; nothing where that is not known yet.
std::optional<json::value> Lowering::without_references(const json::value& lowered) const {
  const json::value* form = resolve(lowered);
  if (form == nullptr) return std::nullopt;
  json::value out = *form;
  json::value* options = out.get_object().if_contains("anyOf");
  for (size_t i = 0; options != nullptr && i < options->get_array().size(); ++i) {
    json::value& option = options->get_array()[i];
    const json::value* one = resolve(option);
    if (one == nullptr || one->get_object().contains("anyOf")) return std::nullopt;
    if (one != &option) option = json::value(*one);
  }
  return out;
}

Result<json::value> Lowering::lower_free_object(const Conjunction& parts, json::object out) {
  Result<json::value> others = lower(others_of(parts));
  if (!others) return others;
  Conjunction names;
  for (const Conjunct& part : parts) {
    if (const json::value* rule = keyword_of(part, "propertyNames")) names.push_back({rule});
  }
  if (!names.empty()) {
    json::value& text = made_.emplace_back(json::object{{"type", "string"}});
    names.push_back({&text});
    Result<json::value> rule = lower(names);
    if (!rule) return rule;
    if (rule->is_bool())
      others = json::value(false);
    else if (std::optional<json::value> form = without_references(*rule))
      out["propertyNames"] = *std::move(form);
    else
      unheld("propertyNames", parts.front().schema);
  }
  if (others->is_bool()) {
    if (least_of(parts, "minProperties") > 0) return json::value(false);
    return json::value{{"enum", json::array{json::object{}}}};
  }
  out["additionalProperties"] = std::move(*others);
  return json::value(std::move(out));
}

}  // namespace sluice::grammar

// Schemas without alternatives: their types, numbers and strings.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "grammar/schema/formats.h"
#include "grammar/schema/lowering.h"

namespace sluice::grammar {

namespace {

struct TypeName {
  std::string_view name;
  TypeSet types;
};
constexpr std::array<TypeName, 7> kTypeNames = {{{"null", kNull},
                                                 {"boolean", kBoolean},
                                                 {"integer", kWhole},
                                                 {"number", kWhole | kFraction},
                                                 {"string", kString},
                                                 {"array", kArray},
                                                 {"object", kObject}}};

TypeSet type_named(std::string_view name) {
  for (const TypeName& type : kTypeNames) {
    if (type.name == name) return type.types;
  }
  return 0;
}

TypeSet types_in(const json::value& type) {
  if (type.is_string()) return type_named(type.get_string());
  TypeSet types = 0;
  for (const json::value& one : type.get_array()) types |= type_named(one.get_string());
  return types;
}

struct TypedKeyword {
  std::string_view name;
  TypeSet type;
};
constexpr std::array<TypedKeyword, 24> kTyped = {{{"properties", kObject},
                                                  {"patternProperties", kObject},
                                                  {"additionalProperties", kObject},
                                                  {"required", kObject},
                                                  {"minProperties", kObject},
                                                  {"maxProperties", kObject},
                                                  {"propertyNames", kObject},
                                                  {"unevaluatedProperties", kObject},
                                                  {"items", kArray},
                                                  {"prefixItems", kArray},
                                                  {"minItems", kArray},
                                                  {"maxItems", kArray},
                                                  {"uniqueItems", kArray},
                                                  {"contains", kArray},
                                                  {"unevaluatedItems", kArray},
                                                  {"minLength", kString},
                                                  {"maxLength", kString},
                                                  {"pattern", kString},
                                                  {"format", kString},
                                                  {"minimum", kWhole | kFraction},
                                                  {"maximum", kWhole | kFraction},
                                                  {"exclusiveMinimum", kWhole | kFraction},
                                                  {"exclusiveMaximum", kWhole | kFraction},
                                                  {"multipleOf", kWhole | kFraction}}};

// A JSON number without an exponent in the grammar's own reader: whole where it is.
json::value bound_value(double bound) {
  if (bound == std::floor(bound) && std::abs(bound) < 9e15) return static_cast<int64_t>(bound);
  return bound;
}

struct Range {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  bool without_least = false, without_most = false;

  void raise(double bound, bool without) {
    if (bound > least || (bound == least && without)) {
      least = bound;
      without_least = without;
    }
  }
  void sink(double bound, bool without) {
    if (bound < most || (bound == most && without)) {
      most = bound;
      without_most = without;
    }
  }
  bool empty() const { return least > most || (least == most && (without_least || without_most)); }
};

bool is_true(const json::value* flag) {
  return flag != nullptr && flag->is_bool() && flag->get_bool();
}

Range range_of(const Conjunction& parts) {
  Range range;
  for (const Conjunct& part : parts) {
    const json::value* least = keyword_of(part, "exclusiveMinimum");
    const json::value* most = keyword_of(part, "exclusiveMaximum");
    if (const json::value* bound = keyword_of(part, "minimum"))
      range.raise(number_of(*bound), is_true(least));
    if (const json::value* bound = keyword_of(part, "maximum")) range.sink(number_of(*bound), is_true(most));
    if (least != nullptr && least->is_number()) range.raise(number_of(*least), true);
    if (most != nullptr && most->is_number()) range.sink(number_of(*most), true);
  }
  return range;
}

}  // namespace

// The types that `not` leaves, where it speaks of types alone.
TypeSet Lowering::complement_of(const json::object& none) const {
  const json::value* type = none.if_contains("type");
  if (type == nullptr || document_->target(none) != nullptr) return kEveryType;
  for (const auto& member : none) {
    const std::string_view key = member.key();
    const bool says_nothing = key == "title" || key == "description" || key == "$comment";
    if (key != "type" && !says_nothing) return kEveryType;
  }
  return static_cast<TypeSet>(kEveryType & ~types_in(*type));
}

std::optional<TypeSet> Lowering::types_of(const Conjunction& parts, bool& assumed) {
  TypeSet types = kEveryType;
  bool given = false;
  for (const Conjunct& part : parts) {
    if (const json::value* type = keyword_of(part, "type")) {
      types &= types_in(*type);
      given = true;
    }
    const json::value* none = keyword_of(part, "not");
    if (none == nullptr) continue;
    const json::object* schema = none->if_object();
    if (schema == nullptr ? none->get_bool() : schema->empty()) return std::nullopt;
    const TypeSet left = schema == nullptr ? kEveryType : complement_of(*schema);
    if (left == kEveryType && schema != nullptr) unheld("not", part.schema);
    given = given || left != kEveryType;
    types &= left;
  }
  if (given) return types;
  TypeSet mentioned = 0;
  for (const Conjunct& part : parts) {
    for (const TypedKeyword& keyword : kTyped) {
      if (keyword_of(part, keyword.name) != nullptr) mentioned |= keyword.type;
    }
  }
  assumed = mentioned != 0;
  return mentioned == 0 || !options_.closed_objects ? kEveryType : mentioned;
}

Result<json::value> Lowering::lower_typed(const Conjunction& parts) {
  for (const Conjunct& part : parts) {
    const bool has_branch = keyword_of(part, "then") != nullptr || keyword_of(part, "else") != nullptr;
    if (keyword_of(part, "if") != nullptr && has_branch) unheld("if", part.schema);
  }
  bool assumed = false;
  const std::optional<TypeSet> types = types_of(parts, assumed);
  if (!types || *types == 0) return json::value(false);
  if (*types == kEveryType && !assumed) return json::value(json::object{});
  if ((*types & (kWhole | kFraction)) == kFraction) {
    for (const Conjunct& part : parts) {
      if (keyword_of(part, "not") != nullptr) unheld("not", part.schema);
    }
  }
  json::array alternatives;
  for (const Type type : {kObject, kArray, kString, kWhole, kFraction, kBoolean, kNull}) {
    const bool is_number = type == kWhole && (*types & kFraction) != 0;  // covered by numbers
    if ((*types & type) == 0 || is_number) continue;
    Result<json::value> one = lower_type(parts, type, *types);
    if (!one) return one;
    if (one->is_bool()) continue;
    if (assumed && options_.closed_objects) one->get_object()["$comment"] = kAssumed;
    alternatives.push_back(std::move(*one));
  }
  if (alternatives.empty()) return json::value(false);
  if (alternatives.size() == 1) return std::move(alternatives[0]);
  return json::value{{"anyOf", std::move(alternatives)}};
}

Result<json::value> Lowering::lower_type(const Conjunction& parts, Type type, TypeSet all) {
  switch (type) {
    case kNull:
      return json::value{{"type", "null"}};
    case kBoolean:
      return json::value{{"type", "boolean"}};
    case kWhole:
    case kFraction:
      return lower_number(parts, (all & kFraction) == 0);
    case kString:
      return lower_string(parts);
    case kArray:
      return lower_array(parts);
    case kObject:
      return lower_object(parts);
  }
  return json::value(false);
}

json::value Lowering::lower_number(const Conjunction& parts, bool whole) {
  Range range = range_of(parts);
  if (whole) {
    const double least = std::ceil(range.least), most = std::floor(range.most);
    range = {.least = least + (range.without_least && least == range.least ? 1 : 0),
             .most = most - (range.without_most && most == range.most ? 1 : 0)};
  }
  if (range.empty()) return false;
  json::object out{{"type", whole ? "integer" : "number"}};
  constexpr double kLargest = 9e15;  // whole numbers that a double tells apart
  const auto beyond = [&](double bound) { return std::isfinite(bound) && std::abs(bound) > kLargest; };
  for (const Conjunct& part : parts) {
    if (beyond(range.least) && keyword_of(part, "minimum") != nullptr) unheld("minimum", part.schema);
    if (beyond(range.most) && keyword_of(part, "maximum") != nullptr) unheld("maximum", part.schema);
  }
  if (std::isfinite(range.least) && !beyond(range.least))
    out[range.without_least ? "exclusiveMinimum" : "minimum"] = bound_value(range.least);
  if (std::isfinite(range.most) && !beyond(range.most))
    out[range.without_most ? "exclusiveMaximum" : "maximum"] = bound_value(range.most);
  const bool bounded = out.size() > 1;
  const double width = range.most - range.least;
  for (const Conjunct& part : parts) {
    const json::value* divisor = keyword_of(part, "multipleOf");
    if (divisor == nullptr) continue;
    const bool held = whole && is_whole(*divisor) && number_of(*divisor) <= 1024 &&
                      !out.contains("multipleOf") && (!bounded || width <= 9'000);
    if (whole && number_of(*divisor) == 1) continue;
    if (held)
      out["multipleOf"] = static_cast<int64_t>(number_of(*divisor));
    else
      unheld("multipleOf", part.schema);
  }
  return out;
}

json::value Lowering::lower_string(const Conjunction& parts) {
  if (least_of(parts, "minLength") > most_of(parts, "maxLength")) return false;
  json::object out{{"type", "string"}};
  for (const Conjunct& part : parts) {
    const json::value* pattern = keyword_of(part, "pattern");
    if (pattern == nullptr) continue;
    if (out.contains("pattern") && out["pattern"] != *pattern)
      unheld("pattern", part.schema);
    else
      out["pattern"] = *pattern;
  }
  for (const Conjunct& part : parts) {
    const json::value* format = keyword_of(part, "format");
    if (format == nullptr) continue;
    const StringFormat* known = find_format(format->get_string());
    const bool taken = out.contains("pattern") || (out.contains("format") && out["format"] != *format);
    if (known != nullptr && known->held_by_check && !taken)
      out["pattern"] = known->check;
    else if (known != nullptr && !taken)
      out["format"] = *format;
    else if (known == nullptr || !out.contains("pattern") || out["pattern"].get_string() != known->check)
      unheld("format", part.schema);
  }
  bound_text(parts, out);
  return out;
}

// minLength and maxLength: beside a pattern or a format the grammar keeps them only where the pattern can take them.
void Lowering::bound_text(const Conjunction& parts, json::object& out) {
  const int64_t least = least_of(parts, "minLength"), most = most_of(parts, "maxLength");
  const auto give_up = [&](std::string_view keyword) {
    for (const Conjunct& part : parts) {
      if (keyword_of(part, keyword) != nullptr) unheld(keyword, part.schema);
    }
  };
  const bool counts_least = least > 0, counts_most = most != std::numeric_limits<int64_t>::max();
  if (json::value* pattern = out.if_contains("pattern")) {
    const std::string source(pattern->get_string());
    const std::string bounded =
        least <= LoweringLimits::kRepetitions && (!counts_most || most <= LoweringLimits::kRepetitions)
            ? with_length_bounds(source, least, most)
            : std::string();
    std::string whole = bounded.empty() ? as_whole_match(source) : bounded;
    if (bounded.empty() && counts_least) give_up("minLength");
    if (bounded.empty() && counts_most) give_up("maxLength");
    if (!whole.empty()) {
      *pattern = whole;
      return;
    }
    give_up("pattern");
    out.erase("pattern");
    return;
  }
  const bool has_format = out.contains("format");
  if (counts_least && !has_format && least <= LoweringLimits::kRepetitions)
    out["minLength"] = least;
  else if (counts_least)
    give_up("minLength");
  if (counts_most && !has_format && most <= LoweringLimits::kRepetitions)
    out["maxLength"] = most;
  else if (counts_most)
    give_up("maxLength");
}

}  // namespace sluice::grammar

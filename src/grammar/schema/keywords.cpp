#include "grammar/schema/keywords.h"

#include <algorithm>

namespace sluice::grammar {

namespace {

using enum KeywordShape;

constexpr Keyword kKeywords[] = {
    {"$anchor", String},
    {"$defs", SchemaMap},
    {"$dynamicAnchor", String},
    {"$dynamicRef", String},
    {"$id", String},
    {"$recursiveRef", String},
    {"$ref", String},
    {"additionalItems", Schema},
    {"additionalProperties", Schema},
    {"allOf", Schemas},
    {"anyOf", Schemas},
    {"contains", Schema},
    {"definitions", SchemaMap},
    {"dependencies", Dependencies},
    {"dependentRequired", NameMap},
    {"dependentSchemas", SchemaMap},
    {"else", Schema},
    {"enum", Values},
    {"exclusiveMaximum", NumberOrBoolean},
    {"exclusiveMinimum", NumberOrBoolean},
    {"format", String},
    {"if", Schema},
    {"items", Items},
    {"maxContains", Count},
    {"maxItems", Count},
    {"maxLength", Count},
    {"maxProperties", Count},
    {"maximum", Number},
    {"minContains", Count},
    {"minItems", Count},
    {"minLength", Count},
    {"minProperties", Count},
    {"minimum", Number},
    {"multipleOf", PositiveNumber},
    {"not", Schema},
    {"oneOf", Schemas},
    {"pattern", Pattern},
    {"patternProperties", PatternMap},
    {"prefixItems", Schemas},
    {"properties", SchemaMap},
    {"propertyNames", Schema},
    {"required", Names},
    {"then", Schema},
    {"type", Types},
    {"unevaluatedItems", Schema},
    {"unevaluatedProperties", Schema},
    {"uniqueItems", Boolean},
};

}  // namespace

std::span<const Keyword> keywords() {
  return kKeywords;
}

const Keyword* find_keyword(std::string_view name) {
  static_assert(std::is_sorted(std::begin(kKeywords), std::end(kKeywords),
                               [](const Keyword& a, const Keyword& b) { return a.name < b.name; }));
  const auto* found = std::lower_bound(std::begin(kKeywords), std::end(kKeywords), name,
                                       [](const Keyword& a, std::string_view b) { return a.name < b; });
  return found == std::end(kKeywords) || found->name != name ? nullptr : found;
}

}  // namespace sluice::grammar

#include "grammar/schema/free_values.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::grammar {

namespace {

constexpr std::array<std::string_view, 2> kOneSchema = {"items", "additionalProperties"};
constexpr std::array<std::string_view, 3> kListsOfSchemas = {"prefixItems", "anyOf", "allOf"};
constexpr std::array<std::string_view, 3> kNamedSchemas = {"properties", "patternProperties", "$defs"};

struct FreeValues {
  std::string reference;
  bool found = false;

  void visit(json::value& schema) {
    json::object* object = schema.if_object();
    if (object == nullptr) return;
    if (object->empty()) {
      schema = {{"$ref", reference}};
      found = true;
      return;
    }
    for (const std::string_view name : kOneSchema)
      if (json::value* one = object->if_contains(name)) visit(*one);
    for (const std::string_view name : kListsOfSchemas) {
      json::value* list = object->if_contains(name);
      if (list == nullptr || !list->is_array()) continue;
      for (json::value& one : list->get_array()) visit(one);
    }
    for (const std::string_view name : kNamedSchemas) {
      json::value* named = object->if_contains(name);
      if (named == nullptr || !named->is_object()) continue;
      for (auto& member : named->get_object()) visit(member.value());
    }
  }
};

json::value any_value(const std::string& reference) {
  const json::value self{{"$ref", reference}};
  return {{"anyOf", json::array{{{"type", "object"}, {"additionalProperties", self}},
                                {{"type", "array"}, {"items", self}},
                                {{"type", "string"}},
                                {{"type", "number"}},
                                {{"type", "boolean"}},
                                {{"type", "null"}}}}};
}

}  // namespace

void spell_out_free_values(json::value& schema) {
  std::string name = "any";
  const json::object* object = schema.if_object();
  const json::value* definitions = object == nullptr ? nullptr : object->if_contains("$defs");
  while (definitions != nullptr && definitions->get_object().contains(name)) name += '_';
  FreeValues free{"#/$defs/" + name};
  free.visit(schema);
  if (!free.found) return;
  json::value& all = schema.get_object()["$defs"];
  if (!all.is_object()) all = json::object();
  all.get_object()[name] = any_value(free.reference);
}

}  // namespace sluice::grammar

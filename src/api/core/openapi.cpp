#include <fmt/format.h>

#include <cmath>

#include "api/core/service.h"
#include "api/fields/field_table.h"
#include "base/version.h"

namespace sluice::api {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

json::object list_of(json::object items) {
  return {{"type", "array"}, {"items", std::move(items)}};
}

json::object kind_schema(Kind kind) {
  switch (kind) {
    case Kind::Boolean:
      return {{"type", "boolean"}};
    case Kind::Integer:
    case Kind::Seed:
      return {{"type", "integer"}};
    case Kind::Number:
      return {{"type", "number"}};
    case Kind::Text:
      return {{"type", "string"}};
    case Kind::Texts:
      return {{"oneOf", json::array{json::object{{"type", "string"}}, list_of({{"type", "string"}})}}};
    case Kind::Tokens:
      return list_of({{"type", "integer"}, {"minimum", 0}});
    case Kind::Object:
      return {{"type", "object"}};
    case Kind::List:
      return list_of({});
    case Kind::Any:
      break;
  }
  return {};
}

void add_fields(std::span<const Field> fields, json::object& properties, json::array& required);

json::object field_schema(const Field& field) {
  json::object out = kind_schema(field.shape.kind);
  const bool bounded = field.shape.kind == Kind::Integer || field.shape.kind == Kind::Number;
  const auto limit = [](double value) {
    return value == std::floor(value) ? json::value(static_cast<int64_t>(value)) : json::value(value);
  };
  if (bounded && std::isfinite(field.shape.low)) out["minimum"] = limit(field.shape.low);
  if (bounded && std::isfinite(field.shape.high)) out["maximum"] = limit(field.shape.high);
  if (!field.members.empty()) {
    json::object properties;
    json::array required;
    add_fields(field.members, properties, required);
    out["properties"] = std::move(properties);
  }
  out["description"] = field.treatment == Treatment::Ignored ? fmt::format("Ignored: {}.", field.meaning)
                                                             : std::string(field.meaning);
  if (field.treatment == Treatment::Used && !field.otherwise.empty())
    out["description"] = fmt::format("{} (default: {})", field.meaning, field.otherwise);
  return out;
}

// What is refused is no part of the schema.
void add_fields(std::span<const Field> fields, json::object& properties, json::array& required) {
  for (const Field& field : fields) {
    if (field.treatment == Treatment::Unsupported || properties.contains(field.name)) continue;
    properties.emplace(field.name, field_schema(field));
    if (field.required) required.push_back(json::string(field.name));
  }
}

json::object body_schema(const RequestSchema& request) {
  json::object properties;
  json::array required;
  for (std::span<const Field> group : request.groups) add_fields(group, properties, required);
  return {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

json::object operation_json(const Operation& operation) {
  json::object out{{"summary", json::string(operation.summary)}};
  if (operation.path.find("{model}") != std::string_view::npos)
    out["parameters"] = json::array{json::object{
        {"name", "model"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}};
  if (operation.request != nullptr) {
    const std::string reference = fmt::format("#/components/schemas/{}", operation.request->name);
    out["requestBody"] = {{"required", true},
                          {"content", {{"application/json", {{"schema", {{"$ref", reference}}}}}}}};
  }
  const auto described = [](std::string_view text) {
    return json::object{{"description", json::string(text)}};
  };
  out["responses"] = {{"200", described("The answer, or a stream of it")},
                      {"400", described("The request is wrong, or asks for what is not offered")},
                      {"401", described("The key is missing or wrong")},
                      {"404", described("There is no such model")},
                      {"503", described("Too much is waiting, or the server is starting or stopping")}};
  if (operation.needs_key) out["security"] = json::array{json::object{{"key", json::array()}}};
  return out;
}

}  // namespace

json::object openapi() {
  json::object paths, schemas;
  for (const Operation& operation : operations()) {
    json::object& path = paths.emplace(operation.path, json::object()).first->value().as_object();
    path[lower(operation.method)] = operation_json(operation);
    if (operation.request != nullptr) schemas[operation.request->name] = body_schema(*operation.request);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "sluice"}, {"version", json::string(build_info().version)}}},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", std::move(schemas)},
            {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace sluice::api

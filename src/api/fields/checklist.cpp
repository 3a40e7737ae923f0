#include "api/fields/checklist.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "api/fields/field_table.h"

namespace sluice::api {

namespace {

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::Boolean:
      return "boolean";
    case Kind::Integer:
    case Kind::Seed:
      return "integer";
    case Kind::Number:
      return "number";
    case Kind::Text:
      return "string";
    case Kind::Texts:
      return "string or strings";
    case Kind::Tokens:
      return "token ids";
    case Kind::Object:
      return "object";
    case Kind::List:
      return "list";
    case Kind::Any:
      break;
  }
  return "any";
}

std::string limit(double value, double extreme) {
  return std::abs(value) >= extreme ? "" : fmt::format("{}", value);
}

std::string shape_text(const Shape& shape) {
  const std::string name(kind_name(shape.kind));
  const std::string low = limit(shape.low, 2e9), high = limit(shape.high, 2e9);
  if (low.empty() && high.empty()) return name;
  return fmt::format("{} [{}, {}]", name, low.empty() ? "-" : low, high.empty() ? "-" : high);
}

std::string_view default_text(const Field& field) {
  if (field.required || !field.members.empty()) return "";
  if (!field.otherwise.empty()) return field.otherwise;
  return field.shape.kind == Kind::Boolean ? "false" : "none";
}

void add_used(const Field& field, const std::string& prefix, std::string& out) {
  if (field.treatment != Treatment::Used) return;
  out += fmt::format("| `{}{}`{} | {} | {} | {} |\n", prefix, field.name, field.required ? " *" : "",
                     shape_text(field.shape), default_text(field), field.meaning);
  for (const Field& member : field.members) add_used(member, fmt::format("{}{}.", prefix, field.name), out);
}

void add_names(const Field& field, const std::string& prefix, Treatment treatment,
               std::vector<std::string>& out) {
  if (field.treatment == treatment) out.push_back(fmt::format("`{}{}`", prefix, field.name));
  for (const Field& member : field.members)
    add_names(member, fmt::format("{}{}.", prefix, field.name), treatment, out);
}

std::string schema_text(const RequestSchema& schema) {
  std::string out = "| field | kind | default | meaning |\n|---|---|---|---|\n";
  std::vector<std::string> ignored, refused;
  for (std::span<const Field> group : schema.groups) {
    for (const Field& field : group) {
      if (schema.find(field.name) != &field) continue;
      add_used(field, "", out);
      add_names(field, "", Treatment::Ignored, ignored);
      add_names(field, "", Treatment::Unsupported, refused);
    }
  }
  if (!ignored.empty()) out += fmt::format("\nAccepted and ignored: {}.\n", fmt::join(ignored, ", "));
  if (!refused.empty())
    out += fmt::format("\nRefused with `unsupported_parameter`, unless the value asks for nothing: {}.\n",
                       fmt::join(refused, ", "));
  return out;
}

}  // namespace

std::string field_checklist() {
  std::string out;
  std::map<const RequestSchema*, std::string_view> described;
  for (const Operation& operation : operations()) {
    out += fmt::format("\n## {} {}\n\n{}.\n", operation.method, operation.path, operation.summary);
    if (operation.request == nullptr) continue;
    const auto [found, fresh] = described.emplace(operation.request, operation.path);
    out +=
        fresh ? "\n" + schema_text(*operation.request) : fmt::format("\nFields as of {}.\n", found->second);
  }
  return out;
}

}  // namespace sluice::api

#include "api/fields/field_table.h"

#include <fmt/format.h>

#include <cmath>

#include "api/core/errors.h"

namespace sluice::api {

namespace {

constexpr size_t kBodyDepth = 64, kBodyBytes = size_t{128} << 20;

bool is_whole(const json::value& value) {
  if (value.is_int64() || value.is_uint64()) return true;
  if (!value.is_double()) return false;
  const double number = value.get_double();
  return number == std::floor(number) && std::abs(number) < 9e15;
}

template <class Holds>
bool all_of(const json::value& value, Holds holds) {
  const json::array* list = value.if_array();
  if (list == nullptr) return false;
  for (const json::value& item : *list)
    if (!holds(item)) return false;
  return true;
}

bool is_token(const json::value& value) {
  const int64_t* id = value.if_int64();
  return id != nullptr && *id >= 0 && *id <= std::numeric_limits<Token>::max();
}

bool has_kind(const json::value& value, Kind kind) {
  switch (kind) {
    case Kind::Boolean:
      return value.is_bool();
    case Kind::Integer:
      return is_whole(value);
    case Kind::Seed:
      return value.is_int64() || value.is_uint64();
    case Kind::Number:
      return value.is_number();
    case Kind::Text:
      return value.is_string();
    case Kind::Texts:
      return value.is_string() || all_of(value, [](const json::value& item) { return item.is_string(); });
    case Kind::Tokens:
      return all_of(value, is_token);
    case Kind::Object:
      return value.is_object();
    case Kind::List:
      return value.is_array();
    case Kind::Any:
      break;
  }
  return true;
}

std::string_view wanted(Kind kind) {
  switch (kind) {
    case Kind::Boolean:
      return "true or false";
    case Kind::Integer:
      return "an integer";
    case Kind::Seed:
      return "an integer of 64 bits";
    case Kind::Number:
      return "a number";
    case Kind::Text:
      return "a string";
    case Kind::Texts:
      return "a string or a list of strings";
    case Kind::Tokens:
      return "a list of token ids, integers of at least 0";
    case Kind::Object:
      return "an object";
    case Kind::List:
      return "a list";
    case Kind::Any:
      break;
  }
  return "a value";
}

Problem check_shape(const std::string& path, const json::value& value, const Shape& shape) {
  if (!has_kind(value, shape.kind))
    return invalid_value(path,
                         fmt::format("'{}' is {}; it must be {}", path, shown(value), wanted(shape.kind)));
  if (shape.kind != Kind::Integer && shape.kind != Kind::Number) return std::nullopt;
  const double number = to_double(value);
  if (std::isfinite(number) && number >= shape.low && number <= shape.high) return std::nullopt;
  return invalid_value(
      path, fmt::format("'{}' is {}; it must be from {} to {}", path, shown(value),
                        static_cast<int64_t>(shape.low) == shape.low ? fmt::format("{:.0f}", shape.low)
                                                                     : fmt::format("{}", shape.low),
                        static_cast<int64_t>(shape.high) == shape.high ? fmt::format("{:.0f}", shape.high)
                                                                       : fmt::format("{}", shape.high)));
}

Problem read_members(const json::object& object, std::span<const Field> fields, const std::string& prefix,
                     ParsedRequest& parsed);

Problem read_field(const Field& field, const json::value& value, const std::string& path,
                   ParsedRequest& parsed) {
  if (field.treatment == Treatment::Ignored) return std::nullopt;
  if (field.treatment == Treatment::Unsupported) {
    if (field.harmless != nullptr && field.harmless(value)) return std::nullopt;
    return unsupported_parameter(path, fmt::format("'{}' is not supported: {}", path, field.meaning));
  }
  if (Problem problem = check_shape(path, value, field.shape)) return problem;
  if (!field.members.empty()) {
    if (Problem problem = read_members(value.get_object(), field.members, path + ".", parsed)) return problem;
  }
  if (field.read == nullptr) return std::nullopt;
  const Status status = field.read(value, parsed);
  parsed.sent.push_back(path);
  if (status) return std::nullopt;
  const Error& error = status.error();
  return error.code == ErrorCode::Unsupported ? unsupported_parameter(path, error.message)
                                              : invalid_value(path, error.message);
}

Problem read_members(const json::object& object, std::span<const Field> fields, const std::string& prefix,
                     ParsedRequest& parsed) {
  for (const Field& field : fields) {
    const json::value* value = object.if_contains(field.name);
    if (value != nullptr && !value->is_null()) {
      if (Problem problem = read_field(field, *value, prefix + std::string(field.name), parsed))
        return problem;
    } else if (field.required) {
      return invalid_value(prefix + std::string(field.name),
                           fmt::format("'{}{}' is missing", prefix, field.name));
    }
  }
  return std::nullopt;
}

}  // namespace

Problem read_object(const json::object& object, std::span<const Field> fields, ParsedRequest& parsed) {
  return read_members(object, fields, "", parsed);
}

Problem read_body(const Call& call, const RequestSchema& schema, ParsedRequest& parsed) {
  const JsonLimits limits{
      .depth = kBodyDepth, .bytes = kBodyBytes, .keys = kMostKeys, .interrupt = call.interrupt};
  Result<json::value> value = parse_json(call.body, "request body", limits);
  if (!value) {
    ApiError error = invalid_value("", value.error().message);
    error.code = "invalid_json";
    return error;
  }
  if (!value->is_object()) {
    ApiError error =
        invalid_value("", fmt::format("the request body is {}; it must be an object", shown(*value)));
    error.code = "invalid_json";
    return error;
  }
  const json::object& object = value->get_object();
  for (std::span<const Field> group : schema.groups) {
    for (const Field& field : group) {
      if (object.contains(field.name) && schema.find(field.name) != &field) continue;
      if (Problem problem = read_object(object, {&field, 1}, parsed)) return problem;
    }
  }
  return std::nullopt;
}

const Field* RequestSchema::find(std::string_view field) const {
  for (std::span<const Field> group : groups) {
    for (const Field& row : group)
      if (row.name == field) return &row;
  }
  return nullptr;
}

int to_int(const json::value& value) {
  return static_cast<int>(to_double(value));
}

uint64_t to_seed(const json::value& value) {
  return value.is_uint64() ? value.get_uint64() : static_cast<uint64_t>(value.get_int64());
}

double to_double(const json::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return value.get_double();
}

std::string to_text(const json::value& value) {
  return std::string(value.get_string());
}

std::vector<std::string> to_texts(const json::value& value) {
  if (value.is_string()) return {to_text(value)};
  std::vector<std::string> out;
  for (const json::value& item : value.get_array()) out.push_back(to_text(item));
  return out;
}

std::vector<Token> to_tokens(const json::value& value) {
  std::vector<Token> out;
  for (const json::value& item : value.get_array()) out.push_back(static_cast<Token>(item.get_int64()));
  return out;
}

bool is_empty(const json::value& value) {
  if (const json::string* text = value.if_string()) return text->empty();
  if (const json::array* list = value.if_array()) return list->empty();
  if (const json::object* object = value.if_object()) return object->empty();
  return value.is_bool() && !value.get_bool();
}

bool is_zero(const json::value& value) {
  return value.is_number() ? to_double(value) <= 0 : is_empty(value);
}

bool is_none(const json::value& value) {
  return is_empty(value) || (value.is_string() && value.get_string() == "none");
}

}  // namespace sluice::api

// The fields of a request body as tables: what is read, what is ignored and what is refused. The one reader of bodies
// goes by them, and so do the OpenAPI document and the checklist of the documentation.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "api/core/parsed_request.h"
#include "api/core/service.h"
#include "base/json.h"
#include "base/result.h"

namespace sluice::api {

enum class Kind : uint8_t {
  Boolean,
  Integer,
  Seed,  // an integer of 64 bits, signed or not
  Number,
  Text,
  Texts,   // a string or a list of strings
  Tokens,  // a list of token ids
  Object,
  List,
  Any,
};

struct Shape {
  Kind kind = Kind::Any;
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

constexpr Shape integer(int low = std::numeric_limits<int>::min(),
                        int high = std::numeric_limits<int>::max()) {
  return {Kind::Integer, static_cast<double>(low), static_cast<double>(high)};
}
constexpr Shape number(double low, double high) {
  return {Kind::Number, low, high};
}

enum class Treatment : uint8_t {
  Used,
  Ignored,      // asks for nothing that an answer would show
  Unsupported,  // 400, except for values that ask for nothing
};

struct Field {
  std::string_view name;
  Shape shape;
  std::string_view meaning;
  Treatment treatment = Treatment::Ignored;
  bool required = false;
  // Used: takes the value, whose kind and range have been checked. An error's message names the field; Unsupported as
  // its code means unsupported_parameter.
  Status (*read)(const json::value& value, ParsedRequest& parsed) = nullptr;
  // Unsupported: whether the value asks for nothing.
  bool (*harmless)(const json::value& value) = nullptr;
  std::span<const Field> members = {};  // of an object
  std::string_view otherwise = {};      // what holds without it; empty: false of a switch, else nothing

  constexpr Field by_default(std::string_view value) const {
    Field field = *this;
    field.otherwise = value;
    return field;
  }
};

// Of rows of the same name the first holds.
struct RequestSchema {
  std::string_view name;
  std::array<std::span<const Field>, 8> groups;  // unused ones are empty

  const Field* find(std::string_view field) const;  // nullptr where there is none
};

using Problem = std::optional<ApiError>;

// Of an object in a request.
inline constexpr size_t kMostKeys = 10'000;

// Fills the draft from the call's body by its tables. Null counts as missing; fields in no table are ignored.
Problem read_body(const Call& call, const RequestSchema& schema, ParsedRequest& parsed);
Problem read_object(const json::object& object, std::span<const Field> fields, ParsedRequest& parsed);

// -- rows

using Read = Status (*)(const json::value&, ParsedRequest&);
using Harmless = bool (*)(const json::value&);

constexpr Field used(std::string_view name, Shape shape, std::string_view meaning, Read read) {
  return {.name = name, .shape = shape, .meaning = meaning, .treatment = Treatment::Used, .read = read};
}
constexpr Field required(Field field) {
  field.required = true;
  return field;
}
constexpr Field ignored(std::string_view name, std::string_view meaning) {
  return {.name = name, .shape = {}, .meaning = meaning};
}
constexpr Field unsupported(std::string_view name, std::string_view meaning, Harmless harmless = nullptr) {
  return {.name = name,
          .shape = {},
          .meaning = meaning,
          .treatment = Treatment::Unsupported,
          .harmless = harmless};
}
constexpr Field nested(std::string_view name, std::string_view meaning, std::span<const Field> members) {
  return {.name = name,
          .shape = {Kind::Object},
          .meaning = meaning,
          .treatment = Treatment::Used,
          .members = members};
}

// -- values whose kind has been checked

int to_int(const json::value& value);
uint64_t to_seed(const json::value& value);
double to_double(const json::value& value);
std::string to_text(const json::value& value);
std::vector<std::string> to_texts(const json::value& value);
std::vector<Token> to_tokens(const json::value& value);

template <class T>
T convert(const json::value& value) {
  if constexpr (std::is_same_v<T, bool>) return value.get_bool();
  if constexpr (std::is_same_v<T, int>) return to_int(value);
  if constexpr (std::is_same_v<T, uint64_t>) return to_seed(value);
  if constexpr (std::is_same_v<T, double>) return to_double(value);
  if constexpr (std::is_same_v<T, std::string>) return to_text(value);
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return to_texts(value);
  if constexpr (std::is_same_v<T, std::vector<Token>>) return to_tokens(value);
}

template <class T>
void assign(T& target, const json::value& value) {
  target = convert<T>(value);
}
template <class T>
void assign(std::optional<T>& target, const json::value& value) {
  target = convert<T>(value);
}

// Reads the value into a member of the draft.
template <auto Member>
Status into(const json::value& value, ParsedRequest& parsed) {
  assign(parsed.*Member, value);
  return {};
}

// -- values that ask for nothing

bool is_empty(const json::value& value);  // "", [], {} or false
bool is_zero(const json::value& value);   // a number not above 0, or empty
bool is_none(const json::value& value);   // "none", or empty

}  // namespace sluice::api

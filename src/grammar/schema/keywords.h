// The keywords of JSON Schema: what their values must look like, and which values are schemas.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::grammar {

enum class KeywordShape : uint8_t {
  Schema,
  Schemas,       // an array of schemas
  SchemaMap,     // an object whose values are schemas
  Items,         // a schema, or an array of them (drafts up to 2019-09)
  Dependencies,  // an object whose values are schemas or arrays of names
  NameMap,       // an object whose values are arrays of names
  Names,         // an array of strings
  Types,         // the name of a type, or an array of such
  Count,         // a whole number from 0
  Number,
  PositiveNumber,
  NumberOrBoolean,  // draft 4 has a boolean beside minimum
  Boolean,
  String,
  Pattern,
  PatternMap,  // an object whose keys are patterns and whose values are schemas
  Values,      // an array
};

struct Keyword {
  std::string_view name;
  KeywordShape shape;
};

std::span<const Keyword> keywords();
// Null for words that say nothing of the value: title, default, x-anything.
const Keyword* find_keyword(std::string_view name);

}  // namespace sluice::grammar

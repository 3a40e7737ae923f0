// A schema rewritten so that the grammar holds it: one form for each type, with only those keywords beside each other that
// the grammar's own reader keeps. $ref with siblings and allOf are merged, anyOf and oneOf are multiplied out over what
// stands beside them, enum and const are filtered by everything else, dependencies become alternatives.
//
// The result never allows less care than the schema by accident: what the grammar cannot hold is listed. It may allow less
// than the schema, which LoweringOptions::closed_objects says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/schema/schema_document.h"

namespace sluice::grammar {

// Something that the grammar lets pass and the schema does not.
struct Unheld {
  std::string keyword;  // "uniqueItems"
  std::string path;     // of the schema that has it: "#/properties/tags"
};

struct LoweredSchema {
  json::value schema;
  std::vector<Unheld> unheld;
};

struct LoweringLimits {
  static constexpr size_t kNodes = 20'000;        // of the result
  static constexpr size_t kAlternatives = 2'000;  // of one place
  static constexpr int kDepth = 200;
  static constexpr int64_t kRepetitions = 100'000;  // lengths and counts that a grammar is asked to count
};

struct LoweringOptions {
  // Objects whose schema names properties and says nothing of others have no others, and a schema without a type that has
  // keywords of types means these. Else a value that fits is refused only where the grammar cannot hold the schema.
  bool closed_objects = true;
};

// Errors: no value fits, or a limit.
Result<LoweredSchema> lower_schema(const std::shared_ptr<const SchemaDocument>& document,
                                   const LoweringOptions& options);

}  // namespace sluice::grammar

// Whether a JSON value fits a schema: what is checked of an answer once it is complete. Formats that the grammar
// knows are asserted; others are notes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/schema/schema_document.h"

namespace sluice::grammar {

struct Violation {
  std::string keyword;  // "uniqueItems"
  std::string schema;   // where it stands: "#/properties/tags"
  std::string value;    // what does not fit: "/tags"
};

class SchemaValidator {
 public:
  explicit SchemaValidator(std::shared_ptr<const SchemaDocument> document) : document_(std::move(document)) {}

  // Nothing where the value fits. Errors: too deep, too many steps.
  Result<std::optional<Violation>> check(const json::value& value) const {
    return check(value, document_->root());
  }
  // The same against one subschema of the document.
  Result<std::optional<Violation>> check(const json::value& value, const json::value& schema) const;
  // The same without saying why, which is cheaper.
  Result<bool> fits(const json::value& value, const json::value& schema) const;

 private:
  std::shared_ptr<const SchemaDocument> document_;
};

}  // namespace sluice::grammar

// A JSON schema as it was sent: parsed under limits, the shape of every keyword checked, references resolved, patterns
// compiled. Whoever walks it later meets nothing malformed. Draft 2020-12; what drafts 4 to 7 write otherwise (definitions,
// dependencies, arrays of items, $ref that hides its siblings where $schema names such a draft) is read too.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/schema/regex.h"

namespace sluice::grammar {

struct SchemaLimits {
  static constexpr size_t kBytes = size_t{1} << 20;
  static constexpr size_t kDepth = 64;
  static constexpr size_t kSchemas = 20'000;  // subschemas of one document
};

class SchemaDocument {
 public:
  // Errors name keyword and path: "`minLength` at #/properties/name must be ...".
  static Result<std::shared_ptr<const SchemaDocument>> parse(std::string_view text);
  static Result<std::shared_ptr<const SchemaDocument>> make(json::value root);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  const json::value& root() const { return root_; }
  // What $ref (or $dynamicRef) of a schema of this document points to; null where it has none.
  const json::value* target(const json::object& schema) const;
  // REQUIRES: the source is a pattern of this document.
  const Regex& regex(std::string_view source) const;
  // Drafts up to 7: beside $ref nothing else counts.
  bool reference_hides_siblings() const { return reference_hides_siblings_; }
  // How many references point to it.
  int references_to(const json::value& schema) const;
  // "#/properties/name"; "#" for what is not in the document.
  std::string path_of(const void* schema) const;
  // The same for many, in one walk over the document.
  std::vector<std::string> paths_of(std::span<const void* const> schemas) const;

 private:
  friend class SchemaIndexer;
  explicit SchemaDocument(json::value root) : root_(std::move(root)) {}

  json::value root_;
  bool reference_hides_siblings_ = false;
  std::unordered_map<const json::object*, const json::value*> targets_;
  std::unordered_map<const json::value*, int> references_;  // how many, by target
  std::unordered_map<std::string, Regex> patterns_;
};

// Equality of JSON values: 1 and 1.0 are equal, the order of members does not count.
bool same_value(const json::value& a, const json::value& b);
// Exact where both are whole. REQUIRES: both are numbers.
bool is_less(const json::value& a, const json::value& b);
// Equal values have equal hashes.
size_t hash_of(const json::value& value);
// REQUIRES: value.is_number()
double number_of(const json::value& value);
// A number without a fraction, 1.0 too.
bool is_whole(const json::value& value);
// Whether a value is of a type by JSON Schema's name for it; an unknown name is read as "object".
bool has_type(const json::value& value, std::string_view type);
// Whether a number is a multiple, up to rounding. REQUIRES: both are numbers, `of` is above 0.
bool is_multiple(const json::value& value, const json::value& of);
// The count that minLength and the like hold. REQUIRES: the shape was checked.
int64_t count_of(const json::value& value);

}  // namespace sluice::grammar

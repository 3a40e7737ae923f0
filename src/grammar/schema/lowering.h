// The state of one lower_schema() call, shared by the files that implement it.
#pragma once

#include <compare>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "grammar/schema/schema_lowering.h"
#include "grammar/schema/schema_validator.h"

namespace sluice::grammar {

// A schema that must hold, without the keywords that were multiplied out already.
struct Conjunct {
  const json::value* schema = nullptr;
  uint8_t done = 0;  // bits of Expanded

  friend auto operator<=>(const Conjunct&, const Conjunct&) = default;
};
enum Expanded : uint8_t { kAnyOf = 1, kOneOf = 2, kDependencies = 4, kReference = 8 };
using Conjunction = std::vector<Conjunct>;

// Sets of types. A number is one with or without a fraction.
using TypeSet = uint8_t;
enum Type : TypeSet {
  kNull = 1,
  kBoolean = 2,
  kWhole = 4,
  kFraction = 8,
  kString = 16,
  kArray = 32,
  kObject = 64
};
inline constexpr TypeSet kEveryType = 127;

// What an object schema looks like after all its conjuncts are merged.
struct ObjectForm {
  std::vector<std::string> names;                    // of properties, in order
  std::vector<std::string> required;                 // each once
  std::unordered_set<std::string_view> is_required;  // the same; the document has the texts
  bool has_patterns = false;
  bool says_of_others = false;  // additionalProperties or unevaluatedProperties
};

class Lowering {
 public:
  Lowering(std::shared_ptr<const SchemaDocument> document, const LoweringOptions& options)
      : document_(std::move(document)), validator_(document_), options_(options) {}

  Result<LoweredSchema> run();

 private:
  // A schema for the grammar, or false where nothing fits. What the document refers to several times is written once, among
  // the definitions.
  Result<json::value> lower(const Conjunction& given);
  // What has nothing more to say left out, references that stand alone replaced by their targets.
  Conjunction simplified(const Conjunction& given) const;
  Result<json::value> lower_new(const Conjunction& wanted);
  // References and allOf resolved: objects only. Nothing where a part is false.
  std::optional<Conjunction> flatten(const Conjunction& wanted) const;
  Result<json::value> lower_values(const Conjunction& parts, const json::array& values);
  Result<json::value> lower_options(const Conjunction& parts, size_t index, bool exactly_one);
  Result<json::value> lower_typed(const Conjunction& parts);
  Result<json::value> lower_type(const Conjunction& parts, Type type, TypeSet all);

  std::optional<TypeSet> types_of(const Conjunction& parts, bool& assumed);
  TypeSet complement_of(const json::object& none) const;

  json::value lower_number(const Conjunction& parts, bool whole);
  json::value lower_string(const Conjunction& parts);
  void bound_text(const Conjunction& parts, json::object& out);
  Result<json::value> lower_array(const Conjunction& parts);
  Result<json::value> lower_object(const Conjunction& parts);
  ObjectForm object_form(const Conjunction& parts) const;
  Result<json::value> lower_patterns(const Conjunction& parts, json::object out);
  Result<json::value> lower_free_object(const Conjunction& parts, json::object out);
  Status lower_properties(const Conjunction& parts, const ObjectForm& form, json::object& out,
                          bool& possible);
  Result<bool> name_fits(const Conjunction& parts, std::string_view name) const;
  Conjunction others_of(const Conjunction& parts) const;
  Conjunction property_of(const Conjunction& parts, std::string_view name) const;

  // The dependencies of a schema as alternatives, made once.
  const json::value* dependencies_of(const json::object& schema);
  std::vector<Unheld> unheld_list() const;
  // `keyword` is a literal.
  void unheld(std::string_view keyword, const void* schema);
  // The smallest or largest count that a keyword gives.
  static int64_t least_of(const Conjunction& parts, std::string_view keyword);
  static int64_t most_of(const Conjunction& parts, std::string_view keyword);

  struct Known {
    // Open: it is being lowered. Inlined: it stands where it was met first.
    enum class State : uint8_t { Open, Inlined, Defined, Impossible };
    std::string name;
    State state = State::Open;
    bool used = false;   // by a reference
    json::value schema;  // Defined
  };
  json::value refer_to(Known& known);
  // What a lowered schema stands for; null where it refers to one that is not known yet.
  const json::value* resolve(const json::value& lowered) const;
  std::optional<json::value> without_references(const json::value& lowered) const;
  std::shared_ptr<const SchemaDocument> document_;
  SchemaValidator validator_;
  LoweringOptions options_;
  std::map<Conjunction, Known> known_;
  std::unordered_map<std::string, const Known*> defined_;  // by reference
  std::map<const json::object*, const json::value*> dependencies_;
  std::deque<json::value> made_;  // schemas that stand in no document; their addresses stay
  std::vector<std::pair<std::string_view, const void*>> unheld_;  // keyword and schema, each once
  std::set<std::pair<std::string_view, const void*>> unheld_seen_;
  size_t nodes_ = 0;
  int depth_ = 0;
};

// Whether no value fits both, as far as types, enumerations and required properties show. `resolve` gives what a lowered
// schema stands for, or null.
using Resolve = std::function<const json::value*(const json::value&)>;
bool are_disjoint(const json::value& a, const json::value& b, const Resolve& resolve);
// Marks a lowered schema whose type is assumed: it says nothing about values of other types.
inline constexpr std::string_view kAssumed = "assumed";

// The keyword of a part. Null where it has none, or where it was multiplied out.
const json::value* keyword_of(const Conjunct& part, std::string_view keyword);

}  // namespace sluice::grammar
